package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// lease is one of the server's. It counts from the moment before the last
// request that was confirmed.
type lease struct {
	id      clientv3.LeaseID
	seconds int64
	own     bool // of one fixed hold, and ends with it

	mu    sync.Mutex
	until time.Time // it certainly lives until then
}

func (l *lease) remains(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until.Sub(now)
}

// grantLease asks for a new one.
func (s *Store) grantLease(ctx context.Context, seconds int64) (*lease, error) {
	sent := time.Now()
	answer, err := s.client.Grant(ctx, seconds)
	if err != nil {
		return nil, err
	}
	return &lease{id: answer.ID, seconds: seconds, until: sent.Add(time.Duration(answer.TTL) * time.Second)}, nil
}

// keepAlive renews a lease, once. rpctypes.ErrLeaseNotFound: it is dead.
func (s *Store) keepAlive(ctx context.Context, l *lease) error {
	sent := time.Now()
	answer, err := s.client.KeepAliveOnce(clientv3.WithRequireLeader(ctx), l.id)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := sent.Add(time.Duration(answer.TTL) * time.Second); until.After(l.until) {
		l.until = until
	}
	return nil
}

// revoke ends a lease and what hangs on it, or leaves that to time. Close waits for it.
func (s *Store) revoke(l *lease) {
	s.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), farewell)
		defer cancel()
		s.client.Revoke(ctx, l.id)
	})
}

// seconds is d in whole seconds, never less.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// leases are the handle's shared leases, one for each number of seconds. All
// renewed holds of one TTL hang on one lease, and so do all places of one
// WaitTTL.
type leases struct {
	s  *Store
	mu sync.Mutex
	m  map[leaseKind]*shared
}

// leaseKind keeps holds and places apart: places end together with their
// process, but a hold must not end because nobody waits any more.
type leaseKind struct {
	seconds int64
	places  bool
}

func holdsFor(ttl time.Duration) leaseKind { return leaseKind{seconds: seconds(ttl)} }

// placesFor is a second longer than it has to be. A grant makes a hold that is to
// last WaitTTL from then; so its lease has to be renewed once a second at most,
// and not with each grant.
func placesFor(req store.Request) leaseKind {
	return leaseKind{seconds: seconds(req.WaitTTL) + 1, places: true}
}

type shared struct {
	turn chan struct{} // holds one: who has it may replace or renew the lease
	mu   sync.Mutex
	now  *lease // nil: none yet, or dead
}

func (ls *leases) of(kind leaseKind) *shared {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	sh := ls.m[kind]
	if sh == nil {
		sh = &shared{turn: make(chan struct{}, 1)}
		ls.m[kind] = sh
	}
	return sh
}

func (sh *shared) current() *lease {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.now
}

func (sh *shared) set(l *lease) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.now = l
}

// have reports whether a key on the lease id lives for as long as this handle keeps
// leases alive: it is one of the shared ones, or that of the claim.
func (ls *leases) have(id clientv3.LeaseID, c *claim) bool {
	if l, _, _, _ := ls.s.claims.known(c); l != nil && l.id == id {
		return true
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, sh := range ls.m {
		if l := sh.current(); l != nil && l.id == id {
			return true
		}
	}
	return false
}

// drop forgets a lease that the server does not know any more.
func (sh *shared) drop(l *lease) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.now == l {
		sh.now = nil
	}
}

// dropHolds forgets one for holds.
func (ls *leases) dropHolds(l *lease) { ls.of(leaseKind{seconds: l.seconds}).drop(l) }

// get returns a lease that lives at least for atLeast from now, renewing the
// present one or asking for a new one if it has to.
func (ls *leases) get(ctx context.Context, kind leaseKind, atLeast time.Duration) (*lease, error) {
	sh, began := ls.of(kind), time.Now()
	enough := func() *lease {
		if l := sh.current(); l != nil && l.remains(began) >= atLeast {
			return l
		}
		return nil
	}
	if l := enough(); l != nil {
		return l, nil
	}
	select {
	case sh.turn <- struct{}{}:
		defer func() { <-sh.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l := enough(); l != nil { // somebody else saw to it meanwhile
		return l, nil
	}
	if l := sh.current(); l != nil && l.remains(time.Now()) > 0 {
		err := ls.s.keepAlive(ctx, l)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil, err
		}
	}
	l, err := ls.s.grantLease(ctx, kind.seconds)
	if err != nil {
		return nil, err
	}
	sh.set(l)
	return l, nil
}
