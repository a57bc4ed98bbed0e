package etcd

import (
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
	// maxEnders is how many goroutines delete keys. In an outage of a TTL the time of all
	// that the handle has is up.
	maxEnders = 16
)

// sweep ends records at their deadlines until there are none, or the handle is closed;
// the leases do the rest.
func (rs *records) sweep() {
	for sleep(rs.s.ctx, sweepEvery) {
		if !rs.pass() {
			return
		}
	}
}

// pass begins to end the records whose time is up, and reports whether there are any left.
func (rs *records) pass() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now := time.Now()
	for _, r := range rs.m {
		if now.Before(r.deadline) || r.ending && now.Before(r.retry) {
			continue
		}
		r.ending, r.retry = true, now.Add(lastDelete+callTimeout) // unless it fails before
		rs.toEnd = append(rs.toEnd, r)
		if rs.enders < maxEnders && rs.s.tasks.Go(rs.endSome) {
			rs.enders++
		}
	}
	rs.on = len(rs.m) > 0
	return rs.on
}

// expire makes a record's time be up.
func (rs *records) expire(r *record) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.deadline = time.Time{}
}

// endSome ends records until there are none to end, or the handle is closed.
func (rs *records) endSome() {
	for r := rs.nextToEnd(); r != nil; r = rs.nextToEnd() {
		ctx, cancel := context.WithTimeout(rs.s.ctx, callTimeout)
		err := rs.end(ctx, r)
		cancel()
		if err != nil {
			rs.endLater(r, err)
		}
	}
}

func (rs *records) nextToEnd() (r *record) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.toEnd) == 0 || rs.s.ctx.Err() != nil {
		rs.enders--
		return nil
	}
	r, rs.toEnd[0] = rs.toEnd[0], nil
	rs.toEnd = rs.toEnd[1:]
	return r
}

// endNow ends a record before its time. If that fails it is tried again.
func (rs *records) endNow(ctx context.Context, r *record) error {
	rs.mu.Lock()
	r.ending, r.retry = true, time.Now().Add(lastDelete+callTimeout)
	r.deadline = time.Time{}
	rs.mu.Unlock()
	err := rs.end(ctx, r)
	if err != nil {
		rs.endLater(r, err)
	}
	return err
}

// endLater has the end of a record tried again. What the server refuses is a matter of
// that record alone; with any other error the others would fare no better now.
func (rs *records) endLater(r *record, err error) {
	refused := errors.Is(rs.s.outcome(err), store.ErrRefused)
	rs.mu.Lock()
	r.pause = max(r.pause, firstDelete)
	r.retry = time.Now().Add(r.pause)
	if refused {
		r.pause = min(2*r.pause, lastDelete)
	}
	rs.mu.Unlock()
	if !refused {
		sleep(rs.s.ctx, firstDelete)
	}
}

// end deletes the keys of a record whose time is up, as far as they hang on this handle's
// leases: another handle that renews a hold has put it on one of its own. A place that
// has become a hold meanwhile, by another handle, is a hold for WaitTTL from now on.
func (rs *records) end(ctx context.Context, r *record) error {
	rs.s.watches.leave(r)
	for rs.is(r) {
		kv, err := rs.s.keyOf(ctx, r)
		if err != nil {
			return err
		}
		if kv == nil || rs.s.leases.have(clientv3.LeaseID(kv.Lease)) == nil {
			rs.forget(r)
			rs.s.watches.leave(r) // again: an answer that came late may have had it wait
			return nil
		}
		if string(kv.Key) == r.keys.hold && rs.becomesHold(r) {
			return nil
		}
		if !rs.is(r) { // it is the key of another call now
			return nil
		}
		if _, err := rs.s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)).
			Then(clientv3.OpDelete(string(kv.Key))).
			Commit(); err != nil {
			return err
		}
	}
	return nil
}

// keyOf reads the place of a record, or else its hold; nil if there is neither. A place
// becomes a hold and never the other way, so they are read in this order.
func (s *Store) keyOf(ctx context.Context, r *record) (*mvccpb.KeyValue, error) {
	for _, key := range []string{r.keys.place, r.keys.hold} {
		answer, err := s.client.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		if len(answer.Kvs) > 0 {
			return answer.Kvs[0], nil
		}
	}
	return nil, nil
}

// becomesHold has a record go on as that of a hold, if it was that of a place.
func (rs *records) becomesHold(r *record) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.state != waiting {
		return false
	}
	r.state, r.lease = unknown, nil
	r.ending, r.pause, r.retry = false, 0, time.Time{}
	r.deadline = time.Now().Add(r.req.WaitTTL)
	return true
}
