package faults

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A request that never arrived is sent again with the same id, so that it does no harm if it
// arrives after all.
func TestFault01AcquireRequestLost(t *testing.T) {
	t.Run("retried", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			w.S1.On(faultstore.Acquire, faultstore.Nth(1, 2), faultstore.DropRequest())
			h := w.Lock(w.C1, "a")

			requests := w.S1.Calls(faultstore.Acquire)
			require.Len(t, requests, 3)
			for _, request := range requests {
				require.Equal(t, requests[0].ID(), request.ID())
			}
			require.Less(t, w.After(requests[2].Sent), 2*askGap)
			require.Equal(t, []int{0, 0, 1}, []int{requests[0].Applied, requests[1].Applied, requests[2].Applied})
			w.Unlock(h)
		})
	})
	t.Run("until the caller's deadline", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			off := w.S1.On(faultstore.Acquire, faultstore.Every, faultstore.DropRequest())
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			q := w.Begin(func() (*dlock.Hold, error) { return w.C1.Mutex("a").LockContext(ctx) })
			at, err := q.Failed()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, 2*time.Second, w.After(at))
			off()
		})
	})
	t.Run("a try answers within StoreTimeout", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			w.S1.On(faultstore.Acquire, faultstore.Every, faultstore.DropRequest())
			_, err := w.C1.Mutex("a").TryLockContext(t.Context())
			require.ErrorIs(t, err, dlock.ErrUnavailable)
			require.ErrorIs(t, err, faultstore.ErrTransport)
			require.NotErrorIs(t, err, dlock.ErrHeld)
			require.LessOrEqual(t, time.Since(w.Start), storeTimeout)
		})
	})
}

// The store granted and its answer was lost. The repeated request gets the same grant: no second
// hold, no second token, no false "held".
func TestFault02AcquireReplyLost(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"cut":            faultstore.DropReply(),
		"silent":         faultstore.MuteReply(),
		"late":           faultstore.DelayReply(2 * storeTimeout),
		"duplicate":      faultstore.Duplicate(),
		"late duplicate": faultstore.DuplicateAfter(time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
				w.S1.On(faultstore.Acquire, faultstore.Nth(1), fault)
				h, _ := w.BeginLock(w.C1, "a").Granted()
				w.SleepUntil(2 * storeTimeout)

				state := w.Inspect("a")
				require.Len(t, state.Holders, 1)
				require.Equal(t, h.Token(), state.Holders[0].Token)
				require.EqualValues(t, 1, state.Token, "tokens issued")
				w.Unlock(h)
			})
		})
	}
}

// The same for a request that was queued. It keeps its one place and its position.
func TestFault02QueuedReplyLost(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"cut":       faultstore.DropReply(),
		"silent":    faultstore.MuteReply(),
		"duplicate": faultstore.Duplicate(),
	} {
		t.Run(name, func(t *testing.T) {
			coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
				h := w.Lock(w.C2, "a")
				w.S1.On(faultstore.Acquire, faultstore.Nth(1), fault)
				q1 := w.BeginLock(w.C1, "a")
				q2 := w.BeginLock(w.C2, "a")
				w.SleepUntil(storeTimeout + time.Second)
				require.Len(t, w.Inspect("a").Queue, 2)

				w.Unlock(h)
				h1, at1 := q1.Granted()
				require.Equal(t, storeTimeout+time.Second, w.After(at1))
				q2.StillWaits()
				w.Unlock(h1)
				h2, _ := q2.Granted()
				w.Unlock(h2)
			})
		})
	}
}

// The store granted, its answer was lost and the caller has gone. The client gives the grant back
// and buries the id. It retries until the store has confirmed or the lease is over.
func TestFault03AcquireReplyLostCallerGone(t *testing.T) {
	const gone = time.Second
	begin := func(t *testing.T, w *coretest.World) (rival *coretest.Call) {
		w.S1.On(faultstore.Acquire, faultstore.Every, faultstore.MuteReply())
		ctx, cancel := context.WithTimeout(t.Context(), gone)
		defer cancel()
		q := w.Begin(func() (*dlock.Hold, error) { return w.C1.Mutex("a").LockContext(ctx) })
		rival = w.BeginLock(w.C2, "a")
		at, err := q.Failed()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, gone, w.After(at))
		require.Equal(t, 1, w.S1.Calls(faultstore.Acquire)[0].Applied, "the fault has had no effect")
		return rival
	}
	t.Run("store answers", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			rival := begin(t, w)
			h, at := rival.Granted()
			require.Equal(t, gone, w.After(at), "given back when the call is cut")
			releases := w.S1.Calls(faultstore.Release)
			require.Len(t, releases, 1)
			require.True(t, releases[0].Refs[0].Bury)
			w.Unlock(h)
		})
	})
	t.Run("store answers later", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			heal := w.S1.On(faultstore.Release, faultstore.Every, faultstore.DropRequest())
			rival := begin(t, w)
			w.SleepUntil(10 * time.Second)
			rival.StillWaits()
			heal()
			h, at := rival.Granted()
			require.LessOrEqual(t, w.After(at), 10*time.Second+200*time.Millisecond)
			w.Unlock(h)
		})
	})
	t.Run("queued", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C2, "a")
			w.S1.On(faultstore.Acquire, faultstore.Every, faultstore.MuteReply())
			ctx, cancel := context.WithTimeout(t.Context(), gone)
			defer cancel()
			q := w.Begin(func() (*dlock.Hold, error) { return w.C1.Mutex("a").LockContext(ctx) })
			at, err := q.Failed()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, gone, w.After(at))
			require.Equal(t, 1, w.S1.Calls(faultstore.Acquire)[0].Applied, "the fault has had no effect")
			synctest.Wait()
			require.Empty(t, w.Inspect("a").Queue, "given up with the call")
			w.Unlock(h)
		})
	})
	t.Run("store never answers", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			w.S1.On(faultstore.Release, faultstore.Every, faultstore.Mute())
			h, at := begin(t, w).Granted()
			require.WithinRange(t, at, w.Start.Add(ttl), w.Start.Add(ttl+2*time.Millisecond), "by the end of the lease")
			w.Unlock(h)
			require.Equal(t, 1, w.C1.Stats().Releases)
			w.SleepUntil(storeTimeout + storeTimeout + ttl + storeTimeout + time.Second)
			require.Zero(t, w.C1.Stats().Releases, "the lease is over, and the release is still tried")
		})
	})
}

// A Try that begins again, as its owner was granted the lock by another call and released it, has no more than
// StoreTimeout in all.
func TestTryThatBeginsAgainHasOneTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{StoreTimeout: time.Second})
		m := c.Mutex("m").As(dlock.NewOwner())
		s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
			if !req.Queue {
				return store.Grant{}, errors.New("connection reset by peer")
			}
			time.Sleep(500 * time.Millisecond)
			return s.Store.Acquire(ctx, req)
		})
		began := time.Now()
		go func() {
			h := coretest.MustLock(t, t.Context(), m)
			time.Sleep(100 * time.Millisecond)
			assert.NoError(t, h.Unlock())
		}()
		_, err := m.TryLockContext(t.Context())
		assert.ErrorIs(t, err, dlock.ErrUnavailable)
		assert.LessOrEqual(t, time.Since(began), time.Second)
	})
}

// Re-entry makes no store call, so no reply of one can be lost.
func TestFault04ReentryDuringOutage(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		outer := w.Lock(w.C1, "a")
		heal := w.S1.Outage(faultstore.DropReply())
		inner, err := w.C1.Mutex("a").LockContext(outer.Context(t.Context()))
		require.NoError(t, err)
		require.Equal(t, 2, inner.Count())
		require.Equal(t, outer.Token(), inner.Token())
		w.Unlock(inner)
		require.NoError(t, outer.Err())
		require.Equal(t, 1, w.S1.Count(faultstore.Any))
		heal()
		w.Unlock(outer)
		require.Equal(t, 2, w.S1.Count(faultstore.Any))
	})
}

// The store has to know of a shared hold under one's own exclusive one. It counts by id: repeated
// three times the request is one hold, and one release ends it.
func TestFault04RepeatedReadUnderWriteCountsOnce(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		rw := w.C1.RWMutex("a")
		write, err := rw.LockContext(t.Context())
		require.NoError(t, err)
		w.S1.On(faultstore.Acquire, faultstore.Nth(2, 3), faultstore.DropReply(), faultstore.Duplicate())
		read, err := rw.RLockContext(write.Context(t.Context()))
		require.NoError(t, err)
		require.Equal(t, 4, w.S1.Count(faultstore.Acquire))
		require.Len(t, w.Inspect("a").Holders, 2)
		require.Equal(t, write.Token(), read.Token())
		w.Unlock(read)
		require.Len(t, w.Inspect("a").Holders, 1)
		w.Unlock(write)
	})
}

// The answer to a call's request is lost. Its owner has got the lock by another call meanwhile, so the call
// re-enters.
func TestCallWithoutAnAnswerReenters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		m := c.Mutex("m").As(dlock.NewOwner())
		s.OnAcquire(func(context.Context, store.Request) (store.Grant, error) {
			s.OnAcquire(s.Store.Acquire)
			time.Sleep(time.Second)
			return store.Grant{}, coretest.ErrDown
		})
		got := make(chan *dlock.Hold, 1)
		go func() { got <- coretest.MustLock(t, t.Context(), m) }()
		synctest.Wait()
		other := coretest.MustLock(t, t.Context(), m)
		h := <-got
		assert.Equal(t, other.Token(), h.Token())
		assert.Equal(t, 2, h.Count())
		assert.Len(t, coretest.Inspect(t, s, "m").Holders, 1)
		require.NoError(t, other.Unlock())
		require.NoError(t, h.Unlock())
		synctest.Wait()
		coretest.WantFree(t, s, "m")
		assert.Zero(t, coretest.Gauges(c))
	})
}

// The store refuses the request of the first waiter. The call behind it asks for itself.
func TestRefusalConcernsNoCallBehind(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		h := w.Lock(w.C1, "a")
		w.S2.On(faultstore.Acquire, faultstore.Nth(2), faultstore.Answer(store.ErrRefused))
		first, behind := w.BeginLock(w.C2, "a"), w.BeginLock(w.C2, "a")
		_, err := first.Failed()
		require.ErrorIs(t, err, dlock.ErrRefused)
		behind.StillWaits()
		w.Unlock(h)
		next, _ := behind.Granted()
		w.Unlock(next)
	})
}
