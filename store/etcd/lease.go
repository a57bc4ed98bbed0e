package etcd

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// maxKeys is how many keys hang on one lease. For a user with rights etcd checks each key of the lease with
// each put, and a lease that ends is deleted with its keys in one step, during which the cluster does nothing
// else.
const maxKeys = 256

// lease is one of the server's. It counts from the moment before the last request that was confirmed.
type lease struct {
	id   clientv3.LeaseID
	kind leaseKind
	turn chan struct{} // holds one: whoever has it renews the lease

	// Guarded by leases.mu.
	keys  int
	sent  time.Time // before the last request that was confirmed
	until time.Time // it certainly lives until then; zero: the server does not know it

	checked time.Time // by findOrphans
}

// leaseKind keeps holds and places apart: places end together with their process, but a hold must not end
// because nobody waits any more.
type leaseKind struct {
	seconds int64
	places  bool
}

// seconds is d in whole seconds, never less.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func holdsFor(ttl time.Duration) leaseKind { return leaseKind{seconds: seconds(ttl)} }

func placesFor(wait time.Duration) leaseKind { return leaseKind{seconds: seconds(wait), places: true} }

// granted is how long the leases of a kind last. Those of ten seconds and more last a tenth longer than needed,
// so that one renewal serves all that is renewed in that time. Those of places last a second longer at least: a
// grant makes a hold that is to last WaitTTL from then, and renewals once a second suffice for that.
func (k leaseKind) granted() int64 {
	if k.places {
		return k.seconds + max(k.seconds/10, 1)
	}
	return k.seconds + k.seconds/10
}

// leases are those of a handle.
type leases struct {
	s   *Store
	mu  sync.Mutex
	m   map[leaseKind][]*lease
	new chan struct{} // holds one: whoever has it asks for a new lease
}

// dead is what remains of a lease that the server does not know.
const dead = math.MinInt64

// remains is how long a lease certainly lives on, less 1 % of its age. The caller keeps a margin of 1 % of the time that
// it is told, for a server whose clock is faster. That margin does not cover the time before.
func (ls *leases) remains(l *lease, now time.Time) time.Duration {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.until.IsZero() {
		return dead
	}
	return l.until.Sub(now) - now.Sub(l.sent)/100
}

// count changes how many keys may hang on a lease.
func (ls *leases) count(l *lease, by int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.keys += by
}

// list is all leases that keys may hang on, or may soon. The others are forgotten.
func (ls *leases) list() (all []*lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	for kind, some := range ls.m {
		ls.m[kind] = slices.DeleteFunc(some, func(l *lease) bool {
			return l.until.IsZero() || l.keys == 0 && l.until.Before(now)
		})
		if all = append(all, ls.m[kind]...); len(ls.m[kind]) == 0 {
			delete(ls.m, kind)
		}
	}
	return all
}

// have is the handle's lease with an id, or nil.
func (ls *leases) have(id clientv3.LeaseID) *lease {
	all := ls.list()
	if i := slices.IndexFunc(all, func(l *lease) bool { return l.id == id }); i >= 0 {
		return all[i]
	}
	return nil
}

// over notes that the server does not have a lease. One whose time is not over here may be unknown only to a member
// that lags behind.
func (ls *leases) over(l *lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.until.Before(time.Now()) {
		l.until = time.Time{}
	}
}

// take returns a lease with room for one more key, which is counted, and lives at least for atLeast from now.
func (ls *leases) take(ctx context.Context, kind leaseKind, atLeast time.Duration) (l *lease, err error) {
	for {
		if l = ls.room(kind); l == nil {
			l, err = ls.grant(ctx, kind)
		}
		if err == nil {
			err = ls.renew(ctx, l, atLeast)
		}
		if err == nil || l == nil {
			return l, err
		}
		if ls.count(l, -1); !isLeaseGone(err) {
			return nil, err
		}
		err = nil
	}
}

// room returns a living lease that has room for one more key, and counts that key; or nil.
func (ls *leases) room(kind leaseKind) *lease {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	for _, l := range slices.Backward(ls.m[kind]) {
		if l.until.After(now) && l.keys < maxKeys {
			l.keys++
			return l
		}
	}
	return nil
}

// grant asks for a new lease, unless another caller has got one with room meanwhile.
func (ls *leases) grant(ctx context.Context, kind leaseKind) (*lease, error) {
	select {
	case ls.new <- struct{}{}:
		defer func() { <-ls.new }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l := ls.room(kind); l != nil {
		return l, nil
	}
	sent := time.Now()
	answer, err := ls.s.client.Grant(ctx, kind.granted())
	if err != nil {
		return nil, err
	}
	until := sent.Add(time.Duration(answer.TTL) * time.Second)
	l := &lease{id: answer.ID, kind: kind, keys: 1, sent: sent, until: until, turn: make(chan struct{}, 1), checked: sent}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.m[kind] = append(ls.m[kind], l)
	return l, nil
}

// check asks for each lease whether it lives, after an error that says of one that it does not, and not of which.
func (ls *leases) check(ctx context.Context, some []*lease) {
	for _, l := range some {
		ls.renew(ctx, l, math.MaxInt64)
	}
}

// renew sees to it that a lease lives at least for atLeast from now. It sends one request for all callers that
// come while it is under way. rpctypes.ErrLeaseNotFound: the lease is dead.
func (ls *leases) renew(ctx context.Context, l *lease, atLeast time.Duration) error {
	began := time.Now()
	if ls.remains(l, began) >= atLeast {
		return nil
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	switch left := ls.remains(l, began); {
	case left >= atLeast:
		return nil
	case left == dead:
		return rpctypes.ErrLeaseNotFound
	}
	// Others wait for the end of this, and its caller may have more time than the lease. When a member is frozen, the next
	// renewal has to reach another one before the lease ends.
	ctx, cancel := context.WithTimeout(ctx, time.Duration(l.kind.seconds)*time.Second/4)
	defer cancel()
	sent := time.Now()
	lasts, err := ls.keepAlive(ctx, l.id)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if until := sent.Add(lasts); isLeaseGone(err) {
		l.until = time.Time{}
	} else if err == nil && until.After(l.until) {
		l.sent, l.until = sent, until
	}
	return err
}

// keepAlive sends one request. The client's KeepAliveOnce sends it again without a pause while there is no connection.
func (ls *leases) keepAlive(ctx context.Context, id clientv3.LeaseID) (lasts time.Duration, err error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	stream, err := pb.NewLeaseClient(ls.s.client.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}) // Recv says why it fails
	answer, err := stream.Recv()
	switch {
	case err != nil:
		return 0, clientv3.ContextError(ctx, err)
	case answer.TTL <= 0:
		return 0, rpctypes.ErrLeaseNotFound
	}
	return time.Duration(answer.TTL) * time.Second, nil
}

// revokeUnused ends the leases that no record may hang on.
func (ls *leases) revokeUnused() {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	var wg sync.WaitGroup
	for _, l := range ls.list() {
		ls.mu.Lock()
		unused := l.keys == 0
		if unused {
			l.until = time.Time{} // a call that is still under way takes another one
		}
		ls.mu.Unlock()
		if unused {
			wg.Go(func() { ls.s.client.Revoke(ctx, l.id) })
		}
	}
	wg.Wait()
}
