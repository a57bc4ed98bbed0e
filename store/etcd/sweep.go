package etcd

import (
	"context"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

const (
	// sweepEvery is how often the handle looks for records whose time is up.
	sweepEvery = 200 * time.Millisecond
	// deleteAgain is the pause before a key is deleted again.
	deleteAgain = time.Second
	// maxDeletes is how many keys are deleted at once. In an outage of a TTL the time of all that the handle
	// has is up.
	maxDeletes = 16
)

// sweep ends records at their deadlines; the leases do the rest when the handle is closed.
func (rs *records) sweep() {
	deleting := make(chan struct{}, maxDeletes)
	for sleep(rs.s.ctx, sweepEvery) {
		for _, r := range rs.due() {
			select {
			case deleting <- struct{}{}:
			case <-rs.s.ctx.Done():
				return
			}
			rs.s.spawn(func() {
				ctx, cancel := context.WithTimeout(rs.s.ctx, callTimeout)
				defer cancel()
				rs.end(ctx, r)
				<-deleting
			})
		}
	}
}

// due are the records whose time is up.
func (rs *records) due() (due []*record) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now := time.Now()
	if now.Before(rs.next) {
		return nil
	}
	rs.next = now.Add(time.Hour)
	for _, r := range rs.m {
		if !now.Before(r.deadline) {
			r.ending = true
			due = append(due, r)
		}
		rs.endAt(r, r.deadline)
	}
	return due
}

// expire has the time of a record be up, if its deadline is not after now, or now is zero.
func (rs *records) expire(r *record, now time.Time) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if now.IsZero() || !now.Before(r.deadline) {
		r.ending = true
		rs.endAt(r, time.Now())
	}
}

// end deletes the keys of a record whose time is up. If that fails, the sweeper tries it again. It does nothing
// if another call of it was earlier, and has had the record go on as that of a hold.
func (rs *records) end(ctx context.Context, r *record) error {
	again := func(after time.Duration) (ending bool) {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		if r.ending {
			rs.endAt(r, time.Now().Add(after))
		}
		return r.ending
	}
	if !again(2 * callTimeout) {
		return nil
	}
	err := rs.deleteKeys(ctx, r)
	if err != nil {
		again(deleteAgain)
	}
	return err
}

// deleteKeys deletes the keys of a record, as far as they hang on this handle's leases: another handle that
// renews a hold has put it on one of its own.
func (rs *records) deleteKeys(ctx context.Context, r *record) error {
	rs.s.watches.leave(r)
	for deleted := false; !deleted; {
		kv, err := rs.s.keyOf(ctx, r)
		if err != nil {
			return err
		}
		if kv == nil || rs.s.leases.have(clientv3.LeaseID(kv.Lease)) == nil {
			break
		}
		key := string(kv.Key)
		if rs.goesOn(r, key != r.place()) {
			return nil
		}
		unchanged := append(r.ours(key), clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision))
		answer, err := rs.s.client.Txn(ctx).If(unchanged...).Then(clientv3.OpDelete(key)).Commit()
		if err != nil {
			return err
		}
		deleted = answer.Succeeded
	}
	rs.s.forget(r)
	return nil
}

// keyOf reads the place of a record, or else its hold; nil if there is neither.
func (s *Store) keyOf(ctx context.Context, r *record) (*mvccpb.KeyValue, error) {
	answer, err := s.client.Get(ctx, r.dir, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	for _, kv := range answer.Kvs {
		key := string(kv.Key)
		ours := key == r.place() || key == r.again() || key == r.first()
		if ours && strings.HasPrefix(string(kv.Value), valueBegins(r.tag, r.id)) {
			return kv, nil
		}
	}
	return nil, nil
}

// goesOn reports whether a record goes on, so that its key is not deleted: another deletion has seen to its end. A
// place that has become a hold meanwhile, by another handle, is a hold for WaitTTL from now on.
func (rs *records) goesOn(r *record, held bool) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if !r.ending || r.gone {
		return true
	}
	if !held || r.state != waiting {
		return false
	}
	r.said, r.change, r.ending = said{}, r.change+1, false
	rs.endAt(r, time.Now().Add(r.req.WaitTTL))
	return true
}

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

// checkLease ends the keys that have no record. A request has one from before it is sent until its release is answered,
// or until an answer says that the id has nothing, as a refusal does. A key that was released just now may be in the list:
// then the record ends with the next read.
func (s *Store) checkLease(l *lease) {
	ctx, cancel := context.WithTimeout(s.ctx, callTimeout)
	defer cancel()
	answer, err := s.client.TimeToLive(ctx, l.id, clientv3.WithAttachedKeys())
	if err != nil {
		return
	}
	if answer.TTL < 0 {
		s.leases.over(l)
	}
	for _, key := range answer.Keys {
		if k, ok := s.ofOrphan(ctx, string(key)); ok {
			s.records.track(store.Request{ID: k.id, Mode: k.mode}, k) // a new record's time is up
		}
	}
}

// ofOrphan says whose key it is that may be an orphan. A key without an id has to be read, unless the handle knows
// of a hold that has it.
func (s *Store) ofOrphan(ctx context.Context, key string) (k idKeys, ok bool) {
	dir := s.keys.dirOf(key)
	k, kind, ok := parse(dir, key)
	if !ok || k.id != "" {
		return k, ok && kind != kindRefused
	}
	if s.records.firstOf(dir) {
		return k, false
	}
	answer, err := s.client.Get(ctx, key)
	if err != nil || len(answer.Kvs) == 0 {
		return k, false
	}
	e, err := parseEntry(dir, answer.Kvs[0])
	if err != nil {
		return k, false
	}
	return e.idKeys, true
}
