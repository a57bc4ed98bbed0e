package peers

import (
	"context"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
	"github.com/dlock-go/dlock/store/redis"
	"github.com/dlock-go/dlock/store/zookeeper"
)

type dlockClient struct {
	*dlock.Client
	store store.Store
}

func openDlockRedis(addr string) (client, error) {
	s, err := redis.Open("redis://" + addr)
	if err != nil {
		return nil, err
	}
	return newDlock(s)
}

func openDlockEtcd(addr string) (client, error) {
	s, err := etcd.Open("etcd://" + addr + "/")
	if err != nil {
		return nil, err
	}
	return newDlock(s)
}

// openDlockZookeeper asks for a short session, so that a connection that loses everything
// is left within the lease.
func openDlockZookeeper(addr string) (client, error) {
	s, err := zookeeper.Open("zk://" + addr + "?session_timeout=1s")
	if err != nil {
		return nil, err
	}
	return newDlock(s)
}

func newDlock(s store.Store) (client, error) {
	c, err := dlock.New(s, &dlock.Options{TTL: lease})
	return dlockClient{c, s}, err
}

func (c dlockClient) Lock(ctx context.Context, name string) (hold, error) {
	h, err := c.Mutex(name).LockContext(ctx)
	if err != nil {
		return nil, err
	}
	return dlockHold{h}, nil
}

func (c dlockClient) Close() {
	c.Client.Close()
	c.store.Close()
}

type dlockHold struct{ *dlock.Hold }

func (h dlockHold) Lost() <-chan struct{} { return h.Done() }
