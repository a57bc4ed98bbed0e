package peers

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	goredislib "github.com/redis/go-redis/v9"
)

type redislockClient struct {
	redis   *goredislib.Client
	locks   *redislock.Client
	careful bool
}

func openRedislock(addr string) (client, error)        { return newRedislock(addr, false) }
func openCarefulRedislock(addr string) (client, error) { return newRedislock(addr, true) }

func newRedislock(addr string, careful bool) (client, error) {
	r := goredislib.NewClient(&goredislib.Options{Addr: addr, ContextTimeoutEnabled: careful})
	return &redislockClient{r, redislock.New(r), careful}, nil
}

// Lock waits as in the example of the documentation, every 100 ms, and for
// longer than the lease, which is the default.
func (c *redislockClient) Lock(ctx context.Context, name string) (hold, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	l, err := c.locks.Obtain(ctx, name, lease, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
	if err != nil {
		return nil, err
	}
	return &redislockHold{renewed(func() bool { return c.refresh(l) == nil }), l}, nil
}

func (c *redislockClient) refresh(l *redislock.Lock) error {
	ctx := context.Background()
	if c.careful {
		bounded, cancel := context.WithTimeout(ctx, lease/3)
		defer cancel()
		ctx = bounded
	}
	return l.Refresh(ctx, lease, nil)
}

func (c *redislockClient) Close() { c.redis.Close() }

type redislockHold struct {
	*renewal
	lock *redislock.Lock
}

func (h *redislockHold) Unlock() error {
	h.stop()
	return h.lock.Release(context.Background())
}

// Token: what it calls so is random.
func (h *redislockHold) Token() uint64 { return 0 }
