package peers

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redsyncrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
)

type redsyncClient struct {
	close   func()
	sync    *redsync.Redsync
	careful bool
}

func openRedsync(addr string) (client, error)        { return newRedsync(addr, false) }
func openCarefulRedsync(addr string) (client, error) { return newRedsync(addr, true) }

func newRedsync(addr string, careful bool) (client, error) {
	r := goredislib.NewClient(&goredislib.Options{Addr: addr, ContextTimeoutEnabled: careful})
	return &redsyncClient{func() { r.Close() }, redsync.New(goredis.NewPool(r)), careful}, nil
}

// openRedsyncRueidis has redsync on rueidis as it comes.
func openRedsyncRueidis(addr string) (client, error) {
	return newRedsyncRueidis(rueidis.ClientOption{InitAddress: []string{addr}})
}

// openRedsyncOnOurOptions has redsync on the client that dlock's redis.Open makes.
func openRedsyncOnOurOptions(addr string) (client, error) {
	return newRedsyncRueidis(rueidis.ClientOption{
		InitAddress: []string{addr}, DisableCache: true, AlwaysPipelining: true, PipelineMultiplex: -1,
		ClientSetInfo: rueidis.DisableClientSetInfo,
		Dialer:        net.Dialer{Timeout: 3 * time.Second, KeepAlive: time.Second}, ConnWriteTimeout: 3 * time.Second,
	})
}

func newRedsyncRueidis(o rueidis.ClientOption) (client, error) {
	r, err := rueidis.NewClient(o)
	if err != nil {
		return nil, err
	}
	return &redsyncClient{r.Close, redsync.New(redsyncrueidis.NewPool(rueidiscompat.NewAdapter(r))), false}, nil
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

func (c *redsyncClient) Close() { c.close() }

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
