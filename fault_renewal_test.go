package dlock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/require"
)

// confirmed returns when the last renewal was sent that was confirmed.
func confirmed(t *testing.T, s *faultstore.Store) time.Time {
	t.Helper()
	var sent time.Time
	for _, renewal := range s.Calls(faultstore.Renew) {
		if !renewal.Returned.IsZero() && renewal.Result.Err == nil {
			sent = renewal.Sent
		}
	}
	require.False(t, sent.IsZero(), "no renewal was confirmed")
	return sent
}

// A renewal that the store has applied and nobody has confirmed is worth
// nothing: the claim ends where the last confirmed request put it.
func TestFault09RenewReplyLost(t *testing.T) {
	t.Run("one", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			w.s1.On(faultstore.Renew, faultstore.Nth(1), faultstore.MuteReply())
			w.sleepUntil(10 * ttl)
			require.NoError(t, h.Err())
			w.unlock(h)
			require.Zero(t, w.toldLost())
		})
	})
	t.Run("slow", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			w.s1.On(faultstore.Renew, faultstore.From(2), faultstore.DropRequest())
			w.s1.On(faultstore.Renew, faultstore.Nth(1), faultstore.DelayReply(2*time.Second))
			at, _ := w.ended(h)
			require.Equal(t, confirmed(t, w.s1).Add(validity(ttl)), at, "counted from the sending")
			w.unlockLost(h)
		})
	})
	for name, fault := range map[string]faultstore.Fault{
		"all, mute": faultstore.MuteReply(),
		"all, cut":  faultstore.DropReply(),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				h := w.lock(w.c1, "a")
				rival := w.beginLock(w.c2, "a")
				w.s1.On(faultstore.Renew, faultstore.Every, fault)
				w.sleepUntil(validity(ttl) - 1)
				require.NoError(t, h.Err())
				require.Greater(t, w.inspect("a").Holders[0].Remaining, ttl/3, "the fault has not bitten")
				rival.waits()

				at, err := w.ended(h)
				require.Equal(t, validity(ttl), w.after(at))
				require.ErrorIs(t, err, dlock.ErrLost)
				next, _ := rival.granted() // the client gave it back when it was lost
				w.unlockLost(h)
				w.unlock(next)
				require.Equal(t, 1, w.toldLost())
			})
		})
	}
}

// The link to the holder goes half open: nothing arrives, nothing breaks. The
// holder is told at the end of the last confirmed request's validity, in every
// way there is, and a rival is granted after that and not before.
func TestFault10HalfOpenLinkAtHolder(t *testing.T) {
	for _, from := range []time.Duration{5 * time.Second, 25 * time.Second, 47 * time.Second} {
		t.Run(from.String(), func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				h := w.lock(w.c1, "a")
				rival := w.beginLock(w.c2, "a")
				reader := w.begin(func() (*dlock.Hold, error) { return w.c2.RWMutex("a").RLockContext(t.Context()) })
				ctx := h.Context(t.Context())
				w.sleepUntil(from)
				last := w.start
				if from > ttl/2 {
					last = confirmed(t, w.s1)
				}
				heal := w.s1.Outage(faultstore.Mute())

				w.sleepUntil(last.Add(validity(ttl)).Sub(w.start) - 1)
				require.NoError(t, h.Err())
				require.NoError(t, ctx.Err())
				at, err := w.ended(h)
				require.Equal(t, last.Add(validity(ttl)), at)
				require.ErrorIs(t, err, dlock.ErrLost)
				require.ErrorIs(t, context.Cause(ctx), dlock.ErrLost)
				require.Equal(t, 1, w.toldLost())
				rival.waits()
				reader.waits()

				next, at := rival.granted()
				require.WithinRange(t, at, last.Add(ttl), last.Add(ttl+50*time.Millisecond))
				heal()
				_, err = w.c1.Mutex("a").LockContext(dlock.WithOwner(t.Context(), h.Owner()))
				require.ErrorIs(t, err, dlock.ErrLost, "re-entry into a lost hold")
				w.unlockLost(h)
				w.unlock(next)
				read, _ := reader.granted()
				w.unlock(read)
				time.Sleep(timeout + time.Second) // a muted release ends, and its repetition
			})
		})
	}
}

// A flood of slow acquires and releases of the same client delays no renewal
// and loses nothing.
func TestFault13RenewalsAmongSlowTraffic(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		var holds []*dlock.Hold
		for i := range 20 {
			holds = append(holds, w.lock(w.c1, fmt.Sprint("kept ", i)))
		}
		busy := func(c faultstore.Call) bool { return strings.HasPrefix(c.Name(), "busy ") }
		w.s1.On(faultstore.Acquire, busy, faultstore.DelayRequest(timeout-time.Millisecond))
		w.s1.On(faultstore.Release, busy, faultstore.DelayReply(timeout-time.Millisecond))
		flood := make(chan struct{}, 200)
		for i := range 200 {
			go func() {
				for w.after(time.Now()) < 2*time.Minute {
					h, err := w.c1.Mutex(fmt.Sprint("busy ", i)).LockContext(t.Context())
					if err == nil {
						_ = h.Unlock()
					}
				}
				flood <- struct{}{}
			}()
		}
		for range 200 {
			w.await(flood)
		}
		require.Greater(t, w.s1.Count(faultstore.Acquire), 3_000, "no flood")

		sent := make(map[string]time.Time)
		for _, renewal := range w.s1.Calls(faultstore.Renew) {
			for _, ref := range renewal.Refs {
				if strings.HasPrefix(ref.Name, "kept ") {
					before, ok := sent[ref.ID]
					if !ok {
						before = w.start
					}
					require.LessOrEqual(t, renewal.Sent.Sub(before), validity(ttl)/3+time.Millisecond)
					sent[ref.ID] = renewal.Sent
				}
			}
		}
		require.Len(t, sent, len(holds))
		for _, h := range holds {
			w.unlock(h)
		}
		require.Zero(t, w.toldLost())
	})
}

// A renewal or two may fail: the next come sooner, and the hold goes on. When
// all fail, there were at least three chances, and no storm.
func TestFault66RenewalFailsOnceOrTwice(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{"cut": faultstore.DropRequest(), "mute": faultstore.Mute()} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				h := w.lock(w.c1, "a")
				w.s1.On(faultstore.Renew, faultstore.Nth(1, 2, 5, 6), fault)
				w.await(w.s1.Arrived(faultstore.Renew, 3))
				renewals := w.s1.Calls(faultstore.Renew)
				require.Less(t, renewals[1].Sent.Sub(renewals[0].Sent), renewals[0].Sent.Sub(w.start))
				require.Less(t, renewals[2].Sent.Sub(renewals[1].Sent), renewals[1].Sent.Sub(renewals[0].Sent))
				require.Less(t, w.after(renewals[2].Sent), validity(ttl))
				w.sleepUntil(10 * ttl)
				require.NoError(t, h.Err())
				w.unlock(h)
				require.Zero(t, w.toldLost())
			})
		})
	}
	t.Run("all", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			w.s1.On(faultstore.Renew, faultstore.Every, faultstore.DropRequest())
			at, _ := w.ended(h)
			require.Equal(t, validity(ttl), w.after(at))
			require.GreaterOrEqual(t, w.s1.Count(faultstore.Renew), 3)
			require.Less(t, w.s1.Count(faultstore.Renew), 30)
			w.unlockLost(h)
		})
	})
}

// A renewal that arrives after the loss, or is answered after it, brings
// nothing back, neither at the store nor here.
func TestFault67RenewalAfterLoss(t *testing.T) {
	t.Run("late request", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			rival := w.beginLock(w.c2, "a")
			late := w.gate()
			w.s1.On(faultstore.Renew, faultstore.Every, faultstore.HoldRequest(late.ch))
			at, _ := w.ended(h)
			require.Equal(t, validity(ttl), w.after(at))
			next, _ := rival.granted()

			late.open()
			synctest.Wait()
			for _, renewal := range w.s1.Calls(faultstore.Renew) {
				require.Equal(t, 1, renewal.Applied, "the fault has not bitten")
			}
			state := w.inspect("a")
			require.Len(t, state.Holders, 1)
			require.Equal(t, next.Token(), state.Holders[0].Token)
			require.ErrorIs(t, h.Err(), dlock.ErrLost)
			w.unlockLost(h)
			w.unlock(next)
			require.Empty(t, w.inspect("a").Holders)
			require.Equal(t, 1, w.toldLost())
		})
	})
	// The store renewed in time, and says so after the end, past the call's own bound.
	t.Run("late reply", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			late := w.gate()
			w.s1.On(faultstore.Renew, faultstore.Every, func(ctx context.Context, deliver func(context.Context) faultstore.Result) faultstore.Result {
				r := deliver(ctx)
				<-late.ch
				return r
			})
			at, _ := w.ended(h)
			require.Equal(t, validity(ttl), w.after(at))
			late.open()
			synctest.Wait()
			require.ErrorIs(t, h.Err(), dlock.ErrLost)
			require.Empty(t, w.inspect("a").Holders)
			w.sleepUntil(2 * ttl)
			require.Equal(t, 1, w.s1.Count(faultstore.Renew))
			w.unlockLost(h)
			require.Equal(t, 1, w.toldLost())
		})
	})
	t.Run("of an expired hold", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			w.outsider("a", "gone", store.Exclusive)
			w.sleepUntil(ttl)
			errs := w.memory.Renew(t.Context(), []store.Ref{{Name: "a", ID: "gone", TTL: ttl}})
			require.Equal(t, []error{store.ErrLost}, errs)
			w.unlock(w.lock(w.c1, "a"))
		})
	})
}
