package peers

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

type concurrencyClient struct {
	etcd    *clientv3.Client
	session *concurrency.Session
}

func openConcurrency(addr string) (client, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	s, err := concurrency.NewSession(c, concurrency.WithTTL(int(lease/time.Second)))
	if err != nil {
		c.Close()
		return nil, err
	}
	return &concurrencyClient{c, s}, nil
}

func (c *concurrencyClient) Lock(ctx context.Context, name string) (hold, error) {
	m := concurrency.NewMutex(c.session, "/peers/"+name)
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return &concurrencyHold{m, c.session}, nil
}

// Close closes the session too, which takes its keys with it.
func (c *concurrencyClient) Close() {
	c.session.Close()
	c.etcd.Close()
}

type concurrencyHold struct {
	mutex   *concurrency.Mutex
	session *concurrency.Session
}

func (h *concurrencyHold) Unlock() error {
	ctx, cancel := context.WithTimeout(context.Background(), lease)
	defer cancel()
	return h.mutex.Unlock(ctx)
}

func (h *concurrencyHold) Lost() <-chan struct{} { return h.session.Done() }

// Token is the revision at which the lock was taken, which the documentation
// does not call a token, but which serves as one.
func (h *concurrencyHold) Token() uint64 { return uint64(h.mutex.Header().Revision) }
