package fenced

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/internal/redistest"
)

func counterKey(lock int) string { return "counter " + strconv.Itoa(lock) }

// count adds 1 to the counter of a lock with a GET and a SET, which only the
// lock makes one step.
func (w *worker) count(lock int) {
	hold, ok := w.lock(lock)
	if !ok {
		return
	}
	defer hold.Unlock()
	ctx, key := context.Background(), counterKey(lock)
	r := report{Lock: lock, Token: hold.Token(), Outcome: written}

	n, err := w.data.Do(ctx, w.data.B().Get().Key(key).Build()).AsInt64()
	if rueidis.IsRedisNil(err) {
		err = nil
	}
	if err == nil {
		err = hold.Err()
	}
	if err != nil {
		r.Outcome, r.Error = failed, err.Error()
		w.tell(r)
		return
	}
	checked := time.Now()
	err = w.data.Do(ctx, w.data.B().Set().Key(key).Value(strconv.FormatInt(n+1, 10)).Build()).Error()
	switch {
	case err != nil:
		r.Outcome, r.Error = unknown, err.Error()
	case hold.Err() != nil && time.Since(checked) > w.order.WaitTTL/100+2*time.Millisecond:
		r.Outcome = late
	}
	w.tell(r)
}

// Workers count, in counters that check nothing, while the connections to the
// store of the locks are cut in the middle of calls, the subscriptions that
// wake-ups come by are killed, and so are processes that wait. Every increment
// that was acknowledged is counted.
//
// Workers reach the counters past the faults, so that they know of each write
// whether it was applied. Nobody who counts is stopped: that takes a fence.
func TestPlainCounterLosesNothing(t *testing.T) {
	everywhere(t, size{8, 1000, 3 * time.Minute}, size{64, 100_000, 20 * time.Minute}, counterLosesNothing)
}

func counterLosesNothing(t *testing.T, s size, server *redistest.Server, on *keeper) {
	const workers, waiters, ttl = 4, 2, 2 * time.Second
	c := newCrew(t)
	hired := 0
	hire := func(job string) *hand {
		hired++
		return c.hire(order{Worker: hired, Job: job, Locks: s.locks, Store: on.wire, Data: server.Addr, TTL: ttl, WaitTTL: max(ttl/4, on.least)})
	}
	var counting, waiting []*hand
	for range workers {
		counting = append(counting, hire("count"))
	}
	for range waiters {
		waiting = append(waiting, hire("wait"))
	}
	cuts, unsubscribed, kills := 0, int64(0), 0
	for round := 0; !c.done(s, cuts > 0 && (unsubscribed > 0 || on.unsubscribe == nil) && kills > 0); round++ {
		time.Sleep(rand.N(time.Second)) // without a fault
		switch round % 8 {
		default:
			on.cut()
			cuts++
		case 2, 6:
			if on.unsubscribe != nil {
				unsubscribed += on.unsubscribe(t)
			}
		case 4:
			one := rand.N(waiters)
			waiting[one].kill()
			waiting[one] = hire("wait")
			kills++
		}
	}
	planned := 0
	if on.planned != nil {
		planned = on.planned()
	}
	dismiss(append(counting, waiting...))
	c.log("all connections cut %d times, one in a call %d times, %d subscribers and %d waiters killed", cuts, planned, unsubscribed, kills)

	acknowledged, slow := make([]int64, s.locks), make([]int, s.locks)
	for _, r := range c.reports {
		switch r.Outcome {
		case late:
			slow[r.Lock]++
			fallthrough
		case written:
			acknowledged[r.Lock]++
		}
	}
	for lock, want := range acknowledged {
		got, err := server.Do("GET", counterKey(lock)).AsInt64()
		switch {
		case err != nil && !rueidis.IsRedisNil(err): // nil: nobody has had this lock
			t.Errorf("counter %d: %v", lock, err)
		case got != want && slow[lock] > 0: // dlock promises nothing then
			t.Logf("counter %d: %d after %d increments, of which %d were starved for longer than the margin", lock, got, want, slow[lock])
		case got != want:
			t.Errorf("counter %d: %d after %d acknowledged increments", lock, got, want)
		}
	}
	if n := c.told(unknown); n > 0 {
		t.Errorf("%d writes have an unknown outcome, though nothing was done to their connections", n)
	}
}
