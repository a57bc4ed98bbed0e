package etcd

import (
	"bytes"
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

const (
	// sweepEvery is how often the handle looks for records whose time is up.
	sweepEvery = 500 * time.Millisecond
	// The pauses between tries to delete a key. They grow where the server refuses to.
	firstDelete = 200 * time.Millisecond
	lastDelete  = 10 * time.Second
	// maxDeletes is how many keys are deleted at once. In an outage of a TTL the time of all that the handle
	// has is up.
	maxDeletes = 16
)

// sweep ends records at their deadlines until there are none, or the handle is closed; the leases do the rest.
func (rs *records) sweep() {
	deleting := make(chan struct{}, maxDeletes)
	for pause := sweepEvery; sleep(rs.s.ctx, pause); {
		due, left := rs.due()
		if !left {
			return
		}
		if pause = sweepEvery; len(due) > 0 {
			pause = firstDelete
		}
		for _, r := range due {
			select {
			case deleting <- struct{}{}:
			case <-rs.s.ctx.Done():
				return
			}
			rs.s.tasks.Go(func() {
				rs.endNow(r)
				<-deleting
			})
		}
	}
}

// due are the records whose time is up, if there are any records left.
func (rs *records) due() (due []*record, left bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.on = len(rs.m) > 0
	now := time.Now()
	if now.Before(rs.next) {
		return nil, rs.on
	}
	rs.next = now.Add(time.Hour)
	for _, r := range rs.m {
		if !now.Before(r.deadline) {
			r.ending, r.deadline = true, now.Add(2*callTimeout)
			due = append(due, r)
		}
		rs.endAt(r, r.deadline)
	}
	return due, rs.on
}

// expire ends a record in the background.
func (rs *records) expire(r *record) {
	rs.isOver(r, time.Time{})
	rs.s.tasks.Go(func() { rs.endNow(r) })
}

// isOver has the time of a record be up, if its deadline is not after now, or now is zero.
func (rs *records) isOver(r *record, now time.Time) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.ending = r.ending || now.IsZero() || !now.Before(r.deadline)
}

func (rs *records) endNow(r *record) error {
	ctx, cancel := context.WithTimeout(rs.s.ctx, callTimeout)
	defer cancel()
	return rs.end(ctx, r)
}

// end deletes the keys of a record whose time is up. If that fails, the sweeper tries it again. It does nothing
// if another call of it was earlier, and has had the record go on as that of a hold.
func (rs *records) end(ctx context.Context, r *record) error {
	rs.mu.Lock()
	if !r.ending {
		rs.mu.Unlock()
		return nil
	}
	rs.endAt(r, time.Now().Add(2*callTimeout))
	rs.mu.Unlock()
	err := rs.deleteKeys(ctx, r)
	if err == nil {
		return nil
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.pause = max(r.pause, firstDelete)
	rs.endAt(r, time.Now().Add(r.pause))
	if errors.Is(rs.s.outcome(err), store.ErrRefused) {
		r.pause = min(2*r.pause, lastDelete)
	}
	return err
}

// deleteKeys deletes the keys of a record, as far as they hang on this handle's leases: another handle that
// renews a hold has put it on one of its own. A place that has become a hold meanwhile, by another handle, is a
// hold for WaitTTL from now on.
func (rs *records) deleteKeys(ctx context.Context, r *record) error {
	rs.s.watches.leave(r)
	for rs.is(r) {
		kv, err := rs.s.keyOf(ctx, r)
		if err != nil {
			return err
		}
		gone := kv == nil || rs.s.leases.have(clientv3.LeaseID(kv.Lease)) == nil
		switch {
		case gone:
		case string(kv.Key) != r.place() && rs.goesOn(r), !rs.is(r): // or it is the key of another call now
			return nil
		default:
			key := string(kv.Key)
			unchanged := append(r.ours(key), clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision))
			answer, err := rs.s.client.Txn(ctx).If(unchanged...).Then(clientv3.OpDelete(key)).Commit()
			if err != nil {
				return err
			}
			gone = answer.Succeeded
		}
		if gone {
			rs.forget(r)
			rs.s.watches.leave(r) // again: an answer that came late may have had it wait
		}
	}
	return nil
}

// keyOf reads the place of a record, or else its hold; nil if there is neither. A place becomes a hold and
// never the other way, so they are read in this order.
func (s *Store) keyOf(ctx context.Context, r *record) (*mvccpb.KeyValue, error) {
	for _, key := range []string{r.place(), r.first(), r.again()} {
		answer, err := s.client.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		if len(answer.Kvs) > 0 && (!r.lacksID(key) || bytes.HasPrefix(answer.Kvs[0].Value, []byte(valueBegins(r.tag, r.id)))) {
			return answer.Kvs[0], nil
		}
	}
	return nil, nil
}

// goesOn has a record whose place has become a hold go on as that of a hold. It reports whether it goes on.
func (rs *records) goesOn(r *record) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if !r.ending {
		return true // another deletion has seen to it, and the hold may have been told since
	}
	if r.state != waiting {
		return false
	}
	r.state, r.lease = unknown, nil
	r.ending, r.pause = false, 0
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

// checkLease ends the keys that had no record at the look before either: a key that is released just now may be
// in the list and have none.
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
