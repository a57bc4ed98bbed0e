package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// The time between two looks at the keys of a lease is a third of the lease, and these at the least and at the
// most.
const (
	leastCheck = time.Second
	mostCheck  = 20 * time.Second
)

// findOrphans looks now and then for keys on the handle's leases that it has no record of. They come of
// requests that a frozen member carries out when the tombstone of their id is gone, and of snapshots that are
// restored. Since the lease is renewed for others, nothing else would end them.
func (s *Store) findOrphans() {
	for sleep(s.ctx, leastCheck) {
		for _, l := range s.leases.list() {
			every := min(max(time.Duration(l.kind.seconds)*time.Second/3, leastCheck), mostCheck)
			if time.Since(l.checked) >= every {
				l.checked = time.Now()
				s.checkLease(l)
			}
		}
	}
}

// checkLease ends the keys that had no record at the look before either: a key that is released just now may be
// in the list and have none.
func (s *Store) checkLease(l *lease) {
	ctx, cancel := context.WithTimeout(s.ctx, callTimeout)
	defer cancel()
	answer, err := s.client.TimeToLive(ctx, l.id, clientv3.WithAttachedKeys())
	if err != nil {
		return
	}
	suspects := make(map[string]bool)
	for _, key := range answer.Keys {
		_, dir, _ := s.keys.split(string(key))
		p, ok := parse(dir, string(key))
		if !ok || p.kind == kindRefused || s.records.find(p.id) != nil {
			continue
		}
		if suspects[string(key)] = true; !l.suspects[string(key)] {
			continue
		}
		if r, fresh := s.records.track(store.Request{ID: p.id, Mode: p.mode}, p.idKeys); fresh {
			s.records.expire(r)
		}
	}
	l.suspects = suspects
}
