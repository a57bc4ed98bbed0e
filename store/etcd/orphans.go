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
		p, ok := s.ofOrphan(ctx, string(key))
		if !ok || p.kind == kindRefused || s.records.find(p.id) != nil {
			continue
		}
		if suspects[p.id] = true; !l.suspects[p.id] {
			continue
		}
		if r, fresh := s.records.track(store.Request{ID: p.id, Mode: p.mode}, p.idKeys); fresh {
			s.records.expire(r)
		}
	}
	l.suspects = suspects
}

// ofOrphan says what a key is that may be an orphan. A key without an id has to be read, unless the handle knows
// of a hold that has it.
func (s *Store) ofOrphan(ctx context.Context, key string) (p parsed, ok bool) {
	dir := s.keys.dirOf(key)
	if p, ok = parse(dir, key); !ok || p.id != "" {
		return p, ok
	}
	if s.records.firstOf(dir) {
		return p, false
	}
	answer, err := s.client.Get(ctx, key)
	if err != nil || len(answer.Kvs) == 0 {
		return p, false
	}
	p.idKeys, ok = firstKeys(dir, answer.Kvs[0].Value)
	return p, ok
}
