package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// maxKeys is how many keys hang on one lease. For a user with rights etcd checks each
// key of the lease with each put, and a lease that ends is deleted with its keys in one
// step, during which the cluster does nothing else.
const maxKeys = 256

// lease is one of the server's. It counts from the moment before the last
// request that was confirmed.
type lease struct {
	id   clientv3.LeaseID
	kind leaseKind
	keys int // guarded by leases.mu

	foreign  bool            // another handle's, which is not renewed here
	checked  time.Time       // when its keys were looked at for orphans, by one goroutine
	suspects map[string]bool // keys that had no record then
	renewing chan struct{}   // holds one: whoever has it renews the lease

	mu    sync.Mutex
	until time.Time // it certainly lives until then; zero: the server does not know it
}

func (l *lease) remains(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until.Sub(now)
}

func (l *lease) dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until.IsZero()
}

// leaseKind keeps holds and places apart: places end together with their process, but a
// hold must not end because nobody waits any more.
type leaseKind struct {
	seconds int64
	places  bool
}

// seconds is d in whole seconds, never less.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func holdsFor(ttl time.Duration) leaseKind { return leaseKind{seconds: seconds(ttl)} }

func placesFor(wait time.Duration) leaseKind {
	return leaseKind{seconds: seconds(wait), places: true}
}

// granted is how long the leases of a kind last. Those of ten seconds and more last a
// tenth longer than needed, so that one renewal serves all that is renewed in that time.
// Those of places last a second longer at least: a grant makes a hold that is to last
// WaitTTL from then, and renewals once a second suffice for that.
func (k leaseKind) granted() int64 {
	slack := k.seconds / 10
	if k.places {
		slack = max(slack, 1)
	}
	return k.seconds + slack
}

// leases are those of a handle.
type leases struct {
	s  *Store
	mu sync.Mutex
	m  map[leaseKind]*shards
}

// shards are the leases of one kind.
type shards struct {
	granting chan struct{} // holds one: whoever has it asks for a new lease
	all      []*lease
}

// of returns the shards of a kind. Callers have mu.
func (ls *leases) of(kind leaseKind) *shards {
	sh := ls.m[kind]
	if sh == nil {
		sh = &shards{granting: make(chan struct{}, 1)}
		ls.m[kind] = sh
	}
	return sh
}

// room returns a lease that has room for one more key, and counts that key; nil if there
// is none that lives.
func (ls *leases) room(kind leaseKind) *lease {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	sh := ls.of(kind)
	for i := len(sh.all) - 1; i >= 0; i-- {
		l := sh.all[i]
		if left := l.remains(now); left <= 0 {
			if l.dead() || l.keys == 0 {
				sh.all = slices.Delete(sh.all, i, i+1)
			}
		} else if l.keys < maxKeys {
			l.keys++
			return l
		}
	}
	return nil
}

// leave gives up the room of a key.
func (ls *leases) leave(l *lease) {
	if l == nil {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.keys--
}

// list is all leases that are not known to be dead.
func (ls *leases) list() (all []*lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, sh := range ls.m {
		for _, l := range sh.all {
			if !l.dead() {
				all = append(all, l)
			}
		}
	}
	return all
}

// have is the handle's lease with an id, or nil.
func (ls *leases) have(id clientv3.LeaseID) *lease {
	for _, l := range ls.list() {
		if l.id == id {
			return l
		}
	}
	return nil
}

// take returns a lease with room for one more key, which is counted, and lives at least for
// atLeast from now.
func (ls *leases) take(ctx context.Context, kind leaseKind, atLeast time.Duration) (*lease, error) {
	for {
		l := ls.room(kind)
		if l == nil {
			var err error
			if l, err = ls.grant(ctx, kind); err != nil {
				return nil, err
			}
		}
		err := ls.s.renewLease(ctx, l, atLeast)
		if err == nil {
			return l, nil
		}
		ls.leave(l)
		if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil, err
		}
	}
}

// grant asks for a new lease, unless another caller has got one with room meanwhile.
func (ls *leases) grant(ctx context.Context, kind leaseKind) (*lease, error) {
	ls.mu.Lock()
	sh := ls.of(kind)
	ls.mu.Unlock()
	select {
	case sh.granting <- struct{}{}:
		defer func() { <-sh.granting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l := ls.room(kind); l != nil {
		return l, nil
	}
	id, until, err := ls.s.grantLease(ctx, kind.granted())
	if err != nil {
		return nil, err
	}
	l := &lease{id: id, kind: kind, keys: 1, until: until, checked: time.Now(), renewing: make(chan struct{}, 1)}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	sh.all = append(sh.all, l)
	return l, nil
}

// drop forgets a lease that the server does not know any more.
func (ls *leases) drop(l *lease) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = time.Time{}
}

// grantLease asks for a lease and says until when it certainly lives.
func (s *Store) grantLease(ctx context.Context, seconds int64) (clientv3.LeaseID, time.Time, error) {
	sent := time.Now()
	answer, err := s.client.Grant(ctx, seconds)
	if err != nil {
		return 0, time.Time{}, err
	}
	return answer.ID, sent.Add(time.Duration(answer.TTL) * time.Second), nil
}

// renewLease sees to it that a lease lives at least for atLeast from now. It sends one
// request for all callers that come while it is under way. rpctypes.ErrLeaseNotFound: the
// lease is dead.
func (s *Store) renewLease(ctx context.Context, l *lease, atLeast time.Duration) error {
	if l.remains(time.Now()) >= atLeast {
		return nil
	}
	began := time.Now()
	select {
	case l.renewing <- struct{}{}:
		defer func() { <-l.renewing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if l.remains(began) >= atLeast {
		return nil
	}
	if l.dead() {
		return rpctypes.ErrLeaseNotFound
	}
	until, err := s.keepAlive(ctx, l.id)
	if err != nil {
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			s.leases.drop(l)
		}
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if until.After(l.until) {
		l.until = until
	}
	return nil
}

// keepAlive renews a lease once.
func (s *Store) keepAlive(ctx context.Context, id clientv3.LeaseID) (until time.Time, err error) {
	sent := time.Now()
	answer, err := s.client.KeepAliveOnce(clientv3.WithRequireLeader(ctx), id)
	if err != nil {
		return time.Time{}, err
	}
	return sent.Add(time.Duration(answer.TTL) * time.Second), nil
}

// revoke ends a lease that nothing else hangs on, or leaves that to time. Close waits for it.
func (s *Store) revoke(id clientv3.LeaseID) {
	s.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), farewell)
		defer cancel()
		s.client.Revoke(ctx, id)
	})
}
