package main

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

func dialEtcd(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

type concurrencyClient struct {
	etcd   *clientv3.Client
	lease  int // seconds
	shared *concurrency.Session
	taken  map[string]bool // names for which the shared session has a locker
}

func openConcurrency(addr string, lease time.Duration) (client, error) {
	etcd, err := dialEtcd(addr)
	if err != nil {
		return nil, err
	}
	c := &concurrencyClient{etcd: etcd, lease: int(lease / time.Second), taken: map[string]bool{}}
	c.shared, err = concurrency.NewSession(etcd, concurrency.WithTTL(c.lease))
	return c, err
}

// locker has the shared session for the first of a name, the others one of their
// own.
func (c *concurrencyClient) locker(name string, _ use) (locker, error) {
	session := c.shared
	if c.taken[name] {
		own, err := concurrency.NewSession(c.etcd, concurrency.WithTTL(c.lease))
		if err != nil {
			return nil, err
		}
		session = own
	}
	c.taken[name] = true
	return &concurrencyLocker{concurrency.NewMutex(session, "/bench/"+name), session}, nil
}

type concurrencyLocker struct {
	mutex   *concurrency.Mutex
	session *concurrency.Session
}

func (l *concurrencyLocker) lock(bool) error    { return l.mutex.Lock(in) }
func (l *concurrencyLocker) unlock() error      { return l.mutex.Unlock(in) }
func (l *concurrencyLocker) keep(time.Duration) {}

func (l *concurrencyLocker) lost() bool {
	select {
	case <-l.session.Done():
		return true
	default:
		return false
	}
}

// etcdPair is the floor of etcd: two transactions, on one lease.
type etcdPair struct {
	etcd  *clientv3.Client
	lease clientv3.LeaseID
}

func openEtcdPair(addr string, lease time.Duration) (client, error) {
	etcd, err := dialEtcd(addr)
	if err != nil {
		return nil, err
	}
	granted, err := etcd.Grant(in, int64(lease/time.Second))
	if err != nil {
		return nil, err
	}
	alive, err := etcd.KeepAlive(in, granted.ID)
	if err != nil {
		return nil, err
	}
	go func() {
		for range alive { // until the client ends
		}
	}()
	return &etcdPair{etcd, granted.ID}, nil
}

func (c *etcdPair) locker(name string, _ use) (locker, error) {
	return &etcdPairLocker{c: c, key: "/floor/" + name}, nil
}

type etcdPairLocker struct {
	c        *etcdPair
	key      string
	revision int64
}

func (l *etcdPairLocker) lock(bool) error {
	r, err := l.c.etcd.Txn(in).
		If(clientv3.Compare(clientv3.CreateRevision(l.key), "=", 0)).
		Then(clientv3.OpPut(l.key, "held", clientv3.WithLease(l.c.lease))).Commit()
	switch {
	case err != nil:
		return err
	case !r.Succeeded:
		return errHeld
	}
	l.revision = r.Header.Revision
	return nil
}

func (l *etcdPairLocker) unlock() error {
	_, err := l.c.etcd.Txn(in).
		If(clientv3.Compare(clientv3.CreateRevision(l.key), "=", l.revision)).
		Then(clientv3.OpDelete(l.key)).Commit()
	return err
}
