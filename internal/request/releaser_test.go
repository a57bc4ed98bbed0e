package request_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/assert"
)

// abandoned returns n requests that may be present at the store.
func (r *rig) abandoned(n int, name string) (list []*request.Request) {
	r.answers(failed(errReset))
	for i := range n {
		q := r.request(fmt.Sprint(name, i))
		assert.Equal(r.t, request.Unknown, q.Send(r.t.Context()).Outcome)
		list = append(list, q)
	}
	return list
}

// hang has the releases of names with that prefix hang until heal is called.
func (r *rig) hang(prefix string) (heal func()) {
	r.spy.OnRelease(func(ctx context.Context, ref store.Ref) error {
		if strings.HasPrefix(ref.Name, prefix) {
			return coretest.Hang(ctx)
		}
		return nil
	})
	return func() { r.releases(succeed) }
}

// Row 104: a part of the store that hangs with 2,000 lost holds and 200 places does
// not delay releases of other names.
func TestFault104HangingReleasesDelayNoOthers(t *testing.T) {
	inBubble(t, func(r *rig) {
		heal := r.hang("hangs")
		for _, q := range r.abandoned(2000, "hangs") {
			q.AbandonLost()
		}
		for _, q := range r.abandoned(200, "hangs too") {
			q.Abandon()
		}
		synctest.Wait()
		for i, q := range r.abandoned(100, "well") {
			gone := q.Cleared()
			q.Abandon()
			assert.Zero(t, r.cleared(gone), "release %d", i)
		}
		assert.Equal(t, 2200, r.sender.PendingReleases())
		heal()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Zero(t, r.sender.PendingReleases())
	})
}

// A release that has failed once is repeated at once, not after those of all lost holds, which fail too.
func TestRepeatedBeforeLostHolds(t *testing.T) {
	inBubble(t, func(r *rig) {
		lost, q := r.abandoned(3000, "lost"), r.abandoned(1, "given")[0]
		var asked atomic.Int64
		r.spy.OnRelease(func(_ context.Context, ref store.Ref) error {
			if ref.Name == q.Name() && asked.Add(1) > 1 {
				return nil
			}
			return errReset
		})
		for _, q := range lost {
			q.AbandonLost()
		}
		synctest.Wait()
		gone := q.Cleared()
		q.Abandon()
		assert.Less(t, r.cleared(gone), timeout)
		r.releases(succeed)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Zero(t, r.sender.PendingReleases())
	})
}

// A store that ends the goroutines of releases ends no release: each is tried again, by others.
func TestReleaseThatEndsItsGoroutine(t *testing.T) {
	inBubble(t, func(r *rig) {
		list := r.abandoned(300, "m")
		r.spy.OnRelease(func(context.Context, store.Ref) error {
			time.Sleep(time.Millisecond)
			runtime.Goexit()
			return nil
		})
		for i, q := range list {
			if i%2 == 0 {
				q.Abandon()
			} else {
				q.AbandonLost()
			}
		}
		time.Sleep(timeout / 2)
		assert.Equal(t, len(list), r.sender.PendingReleases())
		r.releases(succeed)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Zero(t, r.sender.PendingReleases())
		assert.Zero(t, r.sender.Busy().Load(), "idle workers have ended")
	})
}

// However many releases wait, the goroutines that make them are few.
func TestReleasesAreBounded(t *testing.T) {
	inBubble(t, func(r *rig) {
		heal := r.hang("m")
		list := r.abandoned(3000, "m")
		before := runtime.NumGoroutine()
		for i, q := range list {
			if i%2 == 0 {
				q.Abandon()
			} else {
				q.AbandonLost()
			}
		}
		synctest.Wait()
		assert.LessOrEqual(t, runtime.NumGoroutine()-before, 256+8)
		assert.Equal(t, 3000, r.sender.PendingReleases())
		heal()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Zero(t, r.sender.PendingReleases())
		assert.Zero(t, r.sender.Busy().Load(), "idle workers have ended")
	})
}

// In an outage releases are given up when by the lock model nothing of them is left, and not
// before: those under way then are the last.
func TestOutageEndsReleases(t *testing.T) {
	for _, n := range []int{10, 3000} {
		inBubble(t, func(r *rig) {
			list := r.abandoned(n, "m")
			r.spy.OnRelease(func(ctx context.Context, _ store.Ref) error { return coretest.Hang(ctx) })
			for _, q := range list {
				q.Abandon()
			}
			life := timeout + 2*waitTTL
			time.Sleep(life)
			synctest.Wait()
			assert.Equal(t, n, r.sender.PendingReleases(), "given up while the store may have them")
			asked := r.spy.Releases.Load()
			time.Sleep(2 * timeout)
			synctest.Wait()
			assert.Zero(t, r.sender.PendingReleases())
			assert.Zero(t, r.sender.Busy().Load())
			assert.LessOrEqual(t, r.spy.Releases.Load()-asked, int64(8), "tried although nothing is left")
			given := r.logs.Of(slog.LevelWarn, "gave up releasing")
			assert.Len(t, given, n)
			for _, record := range given {
				assert.Contains(t, fmt.Sprint(record.Attrs["error"]), "no reply from the store")
			}
		})
	}
}

// A store that cannot be reached is asked for as long as the hold may be there, also if the lease
// is no longer than the longest pause.
func TestReleasesGoOnToTheEndOfAShortLease(t *testing.T) {
	for range 20 {
		inBubble(t, func(r *rig) {
			const lease = 200 * time.Millisecond
			r.config = request.Config{TTL: lease, WaitTTL: lease / 2, Timeout: lease / 8}
			r.answers(held(1))
			q := r.request("m")
			began := time.Now()
			assert.Equal(t, request.Granted, q.Send(t.Context()).Outcome)
			var last atomic.Int64
			r.spy.OnRelease(func(context.Context, store.Ref) error {
				last.Store(int64(time.Since(began)))
				return errReset
			})
			q.Abandon()
			time.Sleep(3 * lease)
			assert.Zero(t, r.sender.PendingReleases())
			assert.GreaterOrEqual(t, time.Duration(last.Load()), lease)
		})
	}
}

// A store that was closed cannot release. What it was asked for stays counted, so that
// Close says so, and no call waits for it.
func TestReleasesAfterTheStoreWasClosed(t *testing.T) {
	inBubble(t, func(r *rig) {
		q := r.abandoned(1, "m")[0]
		r.releases(func(int) error { return store.ErrClosed })
		gone := q.Cleared()
		q.Abandon()
		assert.Zero(t, r.cleared(gone))
		synctest.Wait()
		assert.Equal(t, 1, r.sender.PendingReleases())
	})
}

// After StopReleases no call is made, and those under way end.
func TestStopReleases(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.hang("m")
		for _, q := range r.abandoned(2, "m") {
			q.Abandon()
		}
		synctest.Wait()
		assert.Equal(t, 2, r.sender.Busy().Load())
		r.sender.StopReleases()
		synctest.Wait()
		assert.Zero(t, r.sender.Busy().Load(), "workers end at once")
		made := r.spy.Releases.Load()
		for _, q := range r.abandoned(1, "m") {
			q.Abandon()
		}
		synctest.Wait()
		assert.Equal(t, made, r.spy.Releases.Load())
		assert.Equal(t, 3, r.sender.PendingReleases())
	})
}

// After StopAcquires a request is refused and sends nothing.
func TestStopAcquires(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.answers(queued(time.Second))
		q := r.request("m")
		o := r.poll(q, q.Send(r.t.Context()))
		r.sender.StopAcquires()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.ErrorIs(t, o.get().Err, store.ErrClosed)
		assert.ErrorIs(t, r.request("m").Send(r.t.Context()).Err, store.ErrClosed)
		assert.EqualValues(t, 1, r.spy.Acquires.Load())
		r.releases(succeed)
		q.Abandon()
	})
}

// A release whose goroutine the store has ended is repeated after a pause, not at once.
func TestReleaseThatEndsItsGoroutinePauses(t *testing.T) {
	inBubble(t, func(r *rig) {
		q := r.abandoned(1, "m")[0]
		r.spy.OnRelease(func(context.Context, store.Ref) error {
			time.Sleep(time.Millisecond)
			runtime.Goexit()
			return nil
		})
		gone := q.Cleared()
		q.Abandon()
		time.Sleep(timeout)
		assert.Less(t, r.spy.Releases.Load(), int64(50))
		r.releases(succeed)
		r.cleared(gone)
	})
}
