package main

import (
	"context"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
	"github.com/dlock-go/dlock/store/redis"
)

type dlockClient struct{ *dlock.Client }

func openDlockRedis(handoffs int) func(string, time.Duration) (client, error) {
	return func(addr string, lease time.Duration) (client, error) {
		s, err := redis.Open("redis://" + addr)
		if err != nil {
			return nil, err
		}
		return newDlock(s, lease, handoffs)
	}
}

func openDlockEtcd(handoffs int) func(string, time.Duration) (client, error) {
	return func(addr string, lease time.Duration) (client, error) {
		s, err := etcd.Open("etcd://" + addr + "/")
		if err != nil {
			return nil, err
		}
		return newDlock(s, lease, handoffs)
	}
}

func newDlock(s store.Store, lease time.Duration, handoffs int) (client, error) {
	c, err := dlock.New(s, &dlock.Options{TTL: lease, LocalHandoffs: handoffs})
	return dlockClient{c}, err
}

// locker: an owner that the caller has made waits at the store, and not in the
// line of its process.
func (c dlockClient) locker(name string, u use) (locker, error) {
	l := &dlockLocker{ctx: in, mutex: c.Mutex(name), rw: c.RWMutex(name)}
	if u.apart {
		l.ctx = dlock.WithOwner(in, dlock.NewOwner())
	}
	return l, nil
}

// dlockLocker has both forms, which are one lock for a writer.
type dlockLocker struct {
	ctx   context.Context
	mutex *dlock.Mutex
	rw    *dlock.RWMutex
	hold  *dlock.Hold
}

func (l *dlockLocker) lock(shared bool) (err error) {
	if shared {
		l.hold, err = l.rw.RLockContext(l.ctx)
	} else {
		l.hold, err = l.mutex.LockContext(l.ctx)
	}
	return err
}

func (l *dlockLocker) unlock() error      { return l.hold.Unlock() }
func (l *dlockLocker) keep(time.Duration) {}
func (l *dlockLocker) lost() bool         { return l.hold.Err() != nil }
