package faults

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/stretchr/testify/require"
)

// A waiter's link is half open. Its deadline is kept. Without one the wait ends when nothing was
// confirmed for a whole TTL. The wait goes on when the link does.
func TestFault11HalfOpenLinkAtWaiter(t *testing.T) {
	t.Run("caller's deadline", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			q := w.Begin(func() (*dlock.Hold, error) { return w.C2.Mutex("a").LockContext(ctx) })
			w.SleepUntil(time.Second)
			heal := w.S2.Outage(faultstore.Mute())
			at, err := q.Failed()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, 10*time.Second, w.After(at))
			require.Empty(t, w.Inspect("a").Queue)
			heal()
			w.SleepUntil(10*time.Second + 2*storeTimeout + time.Second)
			w.Unlock(h)
		})
	})
	t.Run("for good", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			q := w.BeginLock(w.C2, "a")
			w.SleepUntil(2 * time.Second)
			requests := w.S2.Calls(faultstore.Acquire)
			last := requests[len(requests)-1].Sent
			heal := w.S2.Outage(faultstore.Mute())
			at, err := q.Failed()
			require.ErrorIs(t, err, dlock.ErrUnavailable)
			require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's context has no deadline")
			require.WithinRange(t, at, last.Add(ttl-storeTimeout), last.Add(ttl))
			heal()
			time.Sleep(2*storeTimeout + time.Second)
			w.Unlock(h)
		})
	})
	t.Run("for a while", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			q := w.BeginLock(w.C2, "a")
			w.SleepUntil(time.Second)
			heal := w.S2.Outage(faultstore.Mute())
			w.SleepUntil(6 * time.Second)
			w.Unlock(h)
			w.SleepUntil(8 * time.Second)
			q.StillWaits()
			heal()
			next, at := q.Granted()
			require.LessOrEqual(t, w.After(at), 8*time.Second+storeTimeout+time.Second)
			requests := w.S2.Calls(faultstore.Acquire)
			for _, request := range requests {
				require.Equal(t, requests[0].ID(), request.ID())
			}
			w.Unlock(next)
		})
	})
}

// The store is slower than the lease is long. A grant that arrives when its validity is over is
// given back and never returned as held.
func TestFault12SlowStore(t *testing.T) {
	const lease = 10 * time.Second
	opts := &dlock.Options{TTL: lease, StoreTimeout: 2 * lease}
	for name, fault := range map[string]faultstore.Fault{
		"late reply":   faultstore.DelayReply(validity(lease)),
		"late request": faultstore.DelayRequest(validity(lease)),
	} {
		t.Run(name, func(t *testing.T) {
			coretest.InWorld(t, opts, func(t *testing.T, w *coretest.World) {
				w.S1.On(faultstore.Acquire, faultstore.Nth(1), fault)
				at, err := w.BeginLock(w.C1, "a").Failed()
				require.ErrorIs(t, err, dlock.ErrLost)
				require.Equal(t, validity(lease), w.After(at))
				require.Zero(t, w.Losses(), "a lock that was never held was reported as lost")
				require.Equal(t, 1, w.S1.Calls(faultstore.Acquire)[0].Applied, "the fault has had no effect")
				w.Unlock(w.Lock(w.C2, "a")) // free, although the lease would have gone on
			})
		})
	}
	t.Run("just in time", func(t *testing.T) {
		coretest.InWorld(t, opts, func(t *testing.T, w *coretest.World) {
			w.S1.On(faultstore.Acquire, faultstore.Nth(1), faultstore.DelayReply(validity(lease)-1))
			w.S1.On(faultstore.Renew, faultstore.Every, faultstore.DropRequest())
			h, at := w.BeginLock(w.C1, "a").Granted()
			require.Equal(t, validity(lease)-1, w.After(at))
			at, err := w.Ended(h)
			require.Equal(t, validity(lease), w.After(at), "counted from the sending")
			require.ErrorIs(t, err, dlock.ErrLost)
			w.UnlockLost(h)
		})
	})
	t.Run("later than the wait", func(t *testing.T) {
		coretest.InWorld(t, opts, func(t *testing.T, w *coretest.World) {
			w.S1.On(faultstore.Acquire, faultstore.Every, faultstore.DelayRequest(lease+time.Second))
			at, err := w.BeginLock(w.C1, "a").Failed()
			require.ErrorIs(t, err, dlock.ErrUnavailable)
			require.Equal(t, lease, w.After(at))
			w.SleepUntil(lease + time.Second)
			require.Equal(t, 1, w.S1.Calls(faultstore.Acquire)[0].Applied, "the fault has had no effect")
			w.Unlock(w.Lock(w.C2, "a"))
		})
	})
	t.Run("every call slower than StoreTimeout", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			w.S1.On(faultstore.Acquire, faultstore.Every, faultstore.DelayReply(storeTimeout+time.Second))
			at, err := w.BeginLock(w.C1, "a").Failed()
			require.ErrorIs(t, err, dlock.ErrUnavailable)
			require.LessOrEqual(t, w.After(at), ttl)
			time.Sleep(storeTimeout + 2*time.Second)
			w.Unlock(w.Lock(w.C2, "a"))
		})
	})
	t.Run("Lock goes on", func(t *testing.T) {
		coretest.InWorld(t, opts, func(t *testing.T, w *coretest.World) {
			w.S1.On(faultstore.Acquire, faultstore.Nth(1, 2), faultstore.DelayReply(validity(lease)))
			m := w.C1.Mutex("a")
			m.Lock()
			require.LessOrEqual(t, time.Since(w.Start), 2*validity(lease)+time.Second)
			require.Equal(t, 3, w.S1.Count(faultstore.Acquire))
			require.Len(t, w.Inspect("a").Holders, 1)
			m.Unlock()
		})
	})
}
