package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/require"
)

// confirmed returns when the last confirmed renewal was sent.
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

// A renewal that the store applied without a confirmed answer does not count. The hold ends where
// the last confirmed request put its end.
func TestFault09RenewReplyLost(t *testing.T) {
	t.Run("one", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			w.S1.On(faultstore.Renew, faultstore.Nth(1), faultstore.MuteReply())
			w.SleepUntil(10 * ttl)
			require.NoError(t, h.Err())
			w.Unlock(h)
			require.Zero(t, w.Losses())
		})
	})
	t.Run("slow", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			w.S1.On(faultstore.Renew, faultstore.From(2), faultstore.DropRequest())
			w.S1.On(faultstore.Renew, faultstore.Nth(1), faultstore.DelayReply(2*time.Second))
			at, _ := w.Ended(h)
			require.Equal(t, confirmed(t, w.S1).Add(validity(ttl)), at, "counted from the sending")
			w.UnlockLost(h)
		})
	})
	for name, fault := range map[string]faultstore.Fault{
		"all, silent": faultstore.MuteReply(),
		"all, cut":    faultstore.DropReply(),
	} {
		t.Run(name, func(t *testing.T) {
			coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
				h := w.Lock(w.C1, "a")
				rival := w.BeginLock(w.C2, "a")
				w.S1.On(faultstore.Renew, faultstore.Every, fault)
				w.SleepUntil(validity(ttl) - 1)
				require.NoError(t, h.Err())
				require.Greater(t, w.Inspect("a").Holders[0].Remaining, ttl/3, "the fault has had no effect")
				rival.StillWaits()

				at, err := w.Ended(h)
				require.Equal(t, validity(ttl), w.After(at))
				require.ErrorIs(t, err, dlock.ErrLost)
				next, _ := rival.Granted() // the client released the lost hold
				w.UnlockLost(h)
				w.Unlock(next)
				require.Equal(t, 1, w.Losses())
			})
		})
	}
}

// The holder's link is half open: nothing arrives, nothing breaks. The loss is reported in every
// way when the last confirmed request's validity ends. A rival is granted after that and not
// before.
func TestFault10HalfOpenLinkAtHolder(t *testing.T) {
	for _, from := range []time.Duration{5 * time.Second, 25 * time.Second, 47 * time.Second} {
		t.Run(from.String(), func(t *testing.T) {
			coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
				h := w.Lock(w.C1, "a")
				rival := w.BeginLock(w.C2, "a")
				reader := w.Begin(func() (*dlock.Hold, error) { return w.C2.RWMutex("a").RLockContext(t.Context()) })
				ctx := h.Context(t.Context())
				w.SleepUntil(from)
				last := w.Start
				if from > ttl/2 {
					last = confirmed(t, w.S1)
				}
				heal := w.S1.Outage(faultstore.Mute())

				w.SleepUntil(last.Add(validity(ttl)).Sub(w.Start) - 1)
				require.NoError(t, h.Err())
				require.NoError(t, ctx.Err())
				at, err := w.Ended(h)
				require.Equal(t, last.Add(validity(ttl)), at)
				require.ErrorIs(t, err, dlock.ErrLost)
				require.ErrorIs(t, context.Cause(ctx), dlock.ErrLost)
				require.Equal(t, 1, w.Losses())
				rival.StillWaits()
				reader.StillWaits()

				next, at := rival.Granted()
				require.WithinRange(t, at, last.Add(ttl), last.Add(ttl+50*time.Millisecond))
				heal()
				_, err = w.C1.Mutex("a").LockContext(dlock.WithOwner(t.Context(), h.Owner()))
				require.ErrorIs(t, err, dlock.ErrLost, "re-entry into a lost hold has to fail")
				w.UnlockLost(h)
				w.Unlock(next)
				read, _ := reader.Granted()
				w.Unlock(read)
				time.Sleep(storeTimeout + time.Second) // until the release without answer and its retry end
			})
		})
	}
}

// Many slow acquires and releases of the same client delay no renewal and lose nothing.
func TestFault13RenewalsAmongSlowTraffic(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		var holds []*dlock.Hold
		for i := range 20 {
			holds = append(holds, w.Lock(w.C1, fmt.Sprint("kept ", i)))
		}
		busy := func(c faultstore.Call) bool { return strings.HasPrefix(c.Name(), "busy ") }
		w.S1.On(faultstore.Acquire, busy, faultstore.DelayRequest(storeTimeout-time.Millisecond))
		w.S1.On(faultstore.Release, busy, faultstore.DelayReply(storeTimeout-time.Millisecond))
		flood := make(chan struct{}, 200)
		for i := range 200 {
			go func() {
				for w.After(time.Now()) < 2*time.Minute {
					h, err := w.C1.Mutex(fmt.Sprint("busy ", i)).LockContext(t.Context())
					if err == nil {
						_ = h.Unlock()
					}
				}
				flood <- struct{}{}
			}()
		}
		for range 200 {
			w.Await(flood)
		}
		require.Greater(t, w.S1.Count(faultstore.Acquire), 3_000, "too few calls for this test")

		sent := make(map[string]time.Time)
		for _, renewal := range w.S1.Calls(faultstore.Renew) {
			for _, ref := range renewal.Refs {
				if strings.HasPrefix(ref.Name, "kept ") {
					before, ok := sent[ref.ID]
					if !ok {
						before = w.Start
					}
					require.LessOrEqual(t, renewal.Sent.Sub(before), validity(ttl)/3+time.Millisecond)
					sent[ref.ID] = renewal.Sent
				}
			}
		}
		require.Len(t, sent, len(holds))
		for _, h := range holds {
			w.Unlock(h)
		}
		require.Zero(t, w.Losses())
	})
}

// One or two renewals fail. The next ones come sooner, and the hold goes on. When all fail, there
// were at least three, and not many more.
func TestFault66RenewalFailsOnceOrTwice(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{"cut": faultstore.DropRequest(), "silent": faultstore.Mute()} {
		t.Run(name, func(t *testing.T) {
			coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
				h := w.Lock(w.C1, "a")
				w.S1.On(faultstore.Renew, faultstore.Nth(1, 2, 5, 6), fault)
				w.Await(w.S1.Arrived(faultstore.Renew, 3))
				renewals := w.S1.Calls(faultstore.Renew)
				require.Less(t, renewals[1].Sent.Sub(renewals[0].Sent), renewals[0].Sent.Sub(w.Start))
				require.Less(t, renewals[2].Sent.Sub(renewals[1].Sent), renewals[1].Sent.Sub(renewals[0].Sent))
				require.Less(t, w.After(renewals[2].Sent), validity(ttl))
				w.SleepUntil(10 * ttl)
				require.NoError(t, h.Err())
				w.Unlock(h)
				require.Zero(t, w.Losses())
			})
		})
	}
	t.Run("all", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			w.S1.On(faultstore.Renew, faultstore.Every, faultstore.DropRequest())
			at, _ := w.Ended(h)
			require.Equal(t, validity(ttl), w.After(at))
			require.GreaterOrEqual(t, w.S1.Count(faultstore.Renew), 3)
			require.Less(t, w.S1.Count(faultstore.Renew), 30)
			w.UnlockLost(h)
		})
	})
}

// A renewal arrives, or is answered, after the loss. It revives nothing, neither at the store nor
// in the client.
func TestFault67RenewalAfterLoss(t *testing.T) {
	t.Run("late request", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			rival := w.BeginLock(w.C2, "a")
			late := w.Gate()
			w.S1.On(faultstore.Renew, faultstore.Every, faultstore.HoldRequest(late.C))
			at, _ := w.Ended(h)
			require.Equal(t, validity(ttl), w.After(at))
			next, _ := rival.Granted()

			late.Open()
			synctest.Wait()
			for _, renewal := range w.S1.Calls(faultstore.Renew) {
				require.Equal(t, 1, renewal.Applied, "the fault has had no effect")
			}
			state := w.Inspect("a")
			require.Len(t, state.Holders, 1)
			require.Equal(t, next.Token(), state.Holders[0].Token)
			require.ErrorIs(t, h.Err(), dlock.ErrLost)
			w.UnlockLost(h)
			w.Unlock(next)
			require.Empty(t, w.Inspect("a").Holders)
			require.Equal(t, 1, w.Losses())
		})
	})
	// The store renewed in time, and its answer comes after the end of the call and the lease.
	t.Run("late reply", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			late := w.Gate()
			w.S1.On(faultstore.Renew, faultstore.Every, func(ctx context.Context, deliver func(context.Context) faultstore.Result) faultstore.Result {
				r := deliver(ctx)
				<-late.C
				return r
			})
			at, _ := w.Ended(h)
			require.Equal(t, validity(ttl), w.After(at))
			late.Open()
			synctest.Wait()
			require.ErrorIs(t, h.Err(), dlock.ErrLost)
			require.Empty(t, w.Inspect("a").Holders)
			w.SleepUntil(2 * ttl)
			require.Equal(t, 1, w.S1.Count(faultstore.Renew))
			w.UnlockLost(h)
			require.Equal(t, 1, w.Losses())
		})
	})
	t.Run("of an expired hold", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			w.DeadProcess("a", "gone", store.Exclusive)
			w.SleepUntil(ttl)
			errs := w.Memory.Renew(t.Context(), []store.Ref{{Name: "a", ID: "gone", TTL: ttl}})
			require.Equal(t, []error{store.ErrLost}, errs)
			w.Unlock(w.Lock(w.C1, "a"))
		})
	})
}
