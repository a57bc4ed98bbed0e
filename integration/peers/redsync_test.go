package peers

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
)

type redsyncClient struct {
	redis   *goredislib.Client
	sync    *redsync.Redsync
	careful bool
}

func openRedsync(addr string) (client, error)        { return newRedsync(addr, false) }
func openCarefulRedsync(addr string) (client, error) { return newRedsync(addr, true) }

func newRedsync(addr string, careful bool) (client, error) {
	r := goredislib.NewClient(&goredislib.Options{Addr: addr, ContextTimeoutEnabled: careful})
	return &redsyncClient{r, redsync.New(goredis.NewPool(r)), careful}, nil
}

// Lock tries for minutes. The default, 32 tries, ends after about 5 s, and a
// rival has to wait longer than that here.
func (c *redsyncClient) Lock(ctx context.Context, name string) (hold, error) {
	m := c.sync.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(2000))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	h := &redsyncHold{mutex: m}
	h.renewal = renewed(func() bool {
		if c.careful {
			return h.extendUntilOver()
		}
		ok, err := m.Extend()
		return ok && err == nil
	})
	return h, nil
}

func (c *redsyncClient) Close() { c.redis.Close() }

type redsyncHold struct {
	*renewal
	mutex *redsync.Mutex
}

// extendUntilOver extends, and tries again after an error while the lock is
// valid by what the library knows.
func (h *redsyncHold) extendUntilOver() bool {
	for !h.over() {
		ctx, cancel := context.WithDeadline(context.Background(), h.mutex.Until())
		ok, err := h.mutex.ExtendContext(ctx)
		cancel()
		switch {
		case ok && err == nil:
			return true
		case errors.As(err, new(*redsync.ErrTaken)), !time.Now().Before(h.mutex.Until()):
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
	return true
}

func (h *redsyncHold) Unlock() error {
	h.stop()
	_, err := h.mutex.Unlock()
	return err
}

// Token: its values are random.
func (h *redsyncHold) Token() uint64 { return 0 }
