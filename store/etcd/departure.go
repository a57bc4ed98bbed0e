package etcd

import (
	"cmp"
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// departures are the releases of a handle that are on their way.
type departures struct {
	mu sync.Mutex
	m  map[string]*departure // by dir; one at most
}

// departure is a release that is on its way. Its holder is out already, so
// another transaction of this handle may remove the hold as well.
type departure struct {
	key string

	mu    sync.Mutex
	tried []chan struct{} // each closed when a transaction that may remove it is over
	done  bool            // one has
	maybe error           // why nobody knows of one whether it has
}

// begin notes a release, until end is called.
func (ds *departures) begin(dir, key string) (d *departure, end func()) {
	d = &departure{key: key}
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if ds.m[dir] != nil {
		return d, func() {}
	}
	ds.m[dir] = d
	return d, func() {
		ds.mu.Lock()
		defer ds.mu.Unlock()
		delete(ds.m, dir)
	}
}

// join returns the release that is on its way, or nil, for a transaction that
// may remove its hold. over has to be called when that is over: with whether it
// has removed it, or with the error that leaves that open.
func (ds *departures) join(dir string) (d *departure, over func(done bool, maybe error)) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	d = ds.m[dir]
	if d == nil {
		return nil, func(bool, error) {}
	}
	tried := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tried = append(d.tried, tried)
	return d, func(done bool, maybe error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.done = d.done || done
		d.maybe = cmp.Or(d.maybe, maybe)
		close(tried)
	}
}

// instead is that the hold is all there is of the name, and that op takes its place.
func (d *departure) instead(dir string, op clientv3.Op, otherwise clientv3.Op) clientv3.Op {
	nothing := func(from, to string) clientv3.Cmp {
		return clientv3.Compare(clientv3.CreateRevision(from), "=", 0).WithRange(to)
	}
	return clientv3.OpTxn([]clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(d.key), ">", 0),
		nothing(dir, d.key), nothing(d.key+"\x00", clientv3.GetPrefixRangeEnd(dir)),
	}, []clientv3.Op{clientv3.OpDelete(d.key), op}, []clientv3.Op{otherwise})
}

// removed reports, when the release has found no hold, whether that was because
// another transaction of this handle had removed it. An error says that it may have.
func (d *departure) removed(ctx context.Context) (bool, error) {
	d.mu.Lock()
	tried := d.tried
	d.mu.Unlock()
	for _, over := range tried {
		select {
		case <-over:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done {
		return true, nil
	}
	return false, d.maybe
}
