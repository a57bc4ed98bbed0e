package dlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/stretchr/testify/require"
)

// The link to a waiter goes half open. Its deadline is kept, its wait ends when
// nothing has been confirmed for a whole TTL, and it goes on when the link does.
func TestFault11HalfOpenLinkAtWaiter(t *testing.T) {
	t.Run("caller's deadline", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			q := w.begin(func() (*dlock.Hold, error) { return w.c2.Mutex("a").LockContext(ctx) })
			w.sleepUntil(time.Second)
			heal := w.s2.Outage(faultstore.Mute())
			at, err := q.failed()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, 10*time.Second, w.after(at))
			require.Empty(t, w.inspect("a").Queue)
			heal()
			w.sleepUntil(10*time.Second + 2*timeout + time.Second)
			w.unlock(h)
		})
	})
	t.Run("for good", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			q := w.beginLock(w.c2, "a")
			w.sleepUntil(2 * time.Second)
			asks := w.s2.Calls(faultstore.Acquire)
			last := asks[len(asks)-1].Sent
			heal := w.s2.Outage(faultstore.Mute())
			at, err := q.failed()
			require.ErrorIs(t, err, dlock.ErrUnavailable)
			require.NotErrorIs(t, err, context.DeadlineExceeded, "that would be the caller's")
			require.WithinRange(t, at, last.Add(ttl-timeout), last.Add(ttl))
			heal()
			time.Sleep(2*timeout + time.Second)
			w.unlock(h)
		})
	})
	t.Run("for a while", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			q := w.beginLock(w.c2, "a")
			w.sleepUntil(time.Second)
			heal := w.s2.Outage(faultstore.Mute())
			w.sleepUntil(6 * time.Second)
			w.unlock(h)
			w.sleepUntil(8 * time.Second)
			q.waits()
			heal()
			next, at := q.granted()
			require.LessOrEqual(t, w.after(at), 8*time.Second+timeout+time.Second)
			asks := w.s2.Calls(faultstore.Acquire)
			for _, ask := range asks {
				require.Equal(t, asks[0].ID(), ask.ID())
			}
			w.unlock(next)
		})
	})
}

// A store slower than the lease is long. The grant that arrives when its
// validity is over is given back and never returned as held.
func TestFault12SlowStore(t *testing.T) {
	const lease = 10 * time.Second
	opts := &dlock.Options{TTL: lease, StoreTimeout: 2 * lease}
	for name, fault := range map[string]faultstore.Fault{
		"late reply":   faultstore.DelayReply(validity(lease)),
		"late request": faultstore.DelayRequest(validity(lease)),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, opts, func(t *testing.T, w *world) {
				w.s1.On(faultstore.Acquire, faultstore.Nth(1), fault)
				at, err := w.beginLock(w.c1, "a").failed()
				require.ErrorIs(t, err, dlock.ErrLost)
				require.Equal(t, validity(lease), w.after(at))
				require.Zero(t, w.toldLost(), "it was never held")
				require.Equal(t, 1, w.s1.Calls(faultstore.Acquire)[0].Applied, "the fault has not bitten")
				w.unlock(w.lock(w.c2, "a")) // the lease would have gone on
			})
		})
	}
	t.Run("just in time", func(t *testing.T) {
		inWorld(t, opts, func(t *testing.T, w *world) {
			w.s1.On(faultstore.Acquire, faultstore.Nth(1), faultstore.DelayReply(validity(lease)-1))
			w.s1.On(faultstore.Renew, faultstore.Every, faultstore.DropRequest())
			h, at := w.beginLock(w.c1, "a").granted()
			require.Equal(t, validity(lease)-1, w.after(at))
			at, err := w.ended(h)
			require.Equal(t, validity(lease), w.after(at), "counted from the sending")
			require.ErrorIs(t, err, dlock.ErrLost)
			w.unlockLost(h)
		})
	})
	t.Run("later than the wait", func(t *testing.T) {
		inWorld(t, opts, func(t *testing.T, w *world) {
			w.s1.On(faultstore.Acquire, faultstore.Every, faultstore.DelayRequest(lease+time.Second))
			at, err := w.beginLock(w.c1, "a").failed()
			require.ErrorIs(t, err, dlock.ErrUnavailable)
			require.Equal(t, lease, w.after(at))
			w.sleepUntil(lease + time.Second)
			require.Equal(t, 1, w.s1.Calls(faultstore.Acquire)[0].Applied, "the fault has not bitten")
			w.unlock(w.lock(w.c2, "a"))
		})
	})
	t.Run("every call slower than StoreTimeout", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			w.s1.On(faultstore.Acquire, faultstore.Every, faultstore.DelayReply(timeout+time.Second))
			at, err := w.beginLock(w.c1, "a").failed()
			require.ErrorIs(t, err, dlock.ErrUnavailable)
			require.LessOrEqual(t, w.after(at), ttl)
			time.Sleep(timeout + 2*time.Second)
			w.unlock(w.lock(w.c2, "a"))
		})
	})
	t.Run("Lock goes on", func(t *testing.T) {
		inWorld(t, opts, func(t *testing.T, w *world) {
			w.s1.On(faultstore.Acquire, faultstore.Nth(1, 2), faultstore.DelayReply(validity(lease)))
			m := w.c1.Mutex("a")
			m.Lock()
			require.LessOrEqual(t, time.Since(w.start), 2*validity(lease)+time.Second)
			require.Equal(t, 3, w.s1.Count(faultstore.Acquire))
			require.Len(t, w.inspect("a").Holders, 1)
			m.Unlock()
		})
	})
}
