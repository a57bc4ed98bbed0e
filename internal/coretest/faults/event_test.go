package faults

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/stretchr/testify/require"
)

// An event arrives late: its promotion has expired, and another client has held since. Its token
// is not greater than the last confirmed one, so it is refused.
func TestFault54LateEventOfExpiredPromotion(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		h := w.Lock(w.C1, "a")
		q := w.BeginLock(w.C2, "a")
		late := w.Gate()
		w.S2.OnEvent(faultstore.NthEvent(1), faultstore.HoldEvent(late.C))
		w.SleepUntil(500 * time.Millisecond)
		heal := w.S2.On(faultstore.Any, faultstore.Every, faultstore.DropRequest())
		w.SleepUntil(time.Second)
		w.Unlock(h) // the second client is promoted and does not learn that
		promoted := w.Inspect("a").Holders[0].Token
		rival, _ := w.BeginLock(w.C1, "a").Granted() // when the promotion has expired
		heal()
		w.SleepUntil(9 * time.Second)
		requests := w.S2.Calls(faultstore.Acquire)
		confirmed := requests[len(requests)-1].Result
		require.NoError(t, confirmed.Err)
		require.GreaterOrEqual(t, confirmed.Grant.Token, promoted)
		require.Greater(t, rival.Token(), promoted)

		late.Open()
		q.StillWaits()
		require.NoError(t, rival.Err())
		w.SleepUntil(10 * time.Second)
		w.Unlock(rival)
		next, at := q.Granted()
		require.Equal(t, 10*time.Second, w.After(at))
		require.Greater(t, next.Token(), rival.Token())
		w.Unlock(next)
	})
}

// The same, but no answer has been confirmed since. The token is new, but the time is over for
// which the event could grant. The waiter asks the store and believes only the answer.
func TestFault54LateEventIsAHint(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		h := w.Lock(w.C1, "a")
		q := w.BeginLock(w.C2, "a")
		late := w.Gate()
		w.S2.OnEvent(faultstore.NthEvent(1), faultstore.HoldEvent(late.C))
		w.SleepUntil(500 * time.Millisecond)
		heal := w.S2.On(faultstore.Acquire, faultstore.Every, faultstore.DropRequest())
		w.SleepUntil(time.Second)
		w.Unlock(h)
		w.SleepUntil(validity(waitTTL))
		require.Len(t, w.Inspect("a").Holders, 1)
		asked := w.S2.Count(faultstore.Acquire)
		heal()
		late.Open()
		next, at := q.Granted()
		require.Equal(t, validity(waitTTL), w.After(at))
		require.Equal(t, asked+1, w.S2.Count(faultstore.Acquire), "granted without an answer")
		w.S2.On(faultstore.Renew, faultstore.Every, faultstore.DropRequest())
		lost, _ := w.Ended(next)
		require.Equal(t, at.Add(validity(ttl)), lost)
		w.UnlockLost(next)
	})
}

// A grant by event is valid for one WaitTTL less the margin, counted from the sending of the last
// confirmed request. Requests that the store applied without a confirmed answer do not count, nor
// does the time of the event. It is renewed when a third of that time has passed, or before.
func TestFault54GrantByEventCountsFromConfirmedAsk(t *testing.T) {
	second := askEvery // when the second request is sent
	for name, x := range map[string]struct {
		plan func(s *faultstore.Store)
		base time.Duration
	}{
		"first request": {func(s *faultstore.Store) {
			s.On(faultstore.Acquire, faultstore.From(2), faultstore.Mute())
		}, 0},
		"second request": {func(s *faultstore.Store) {}, second},
		"second request applied, not confirmed": {func(s *faultstore.Store) {
			s.On(faultstore.Acquire, faultstore.From(2), faultstore.MuteReply())
		}, 0},
		"second request, slow": {func(s *faultstore.Store) {
			s.On(faultstore.Acquire, faultstore.Nth(2), faultstore.DelayRequest(200*time.Millisecond))
		}, second},
		"none confirmed": {func(s *faultstore.Store) {
			s.On(faultstore.Acquire, faultstore.Every, faultstore.MuteReply())
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
				h := w.Lock(w.C1, "a")
				x.plan(w.S2)
				w.S2.On(faultstore.Renew, faultstore.Every, faultstore.Mute())
				q := w.BeginLock(w.C2, "a")
				w.SleepUntil(2 * time.Second)
				w.Unlock(h)
				next, at := q.Granted()
				want := 2 * time.Second
				if name == "none confirmed" {
					want = storeTimeout // the first request is sent by the caller, which gets its events then
				}
				require.Equal(t, want, w.After(at))
				require.Zero(t, w.S2.Count(faultstore.Renew), "renewed at once")
				w.SleepUntil(want + (x.base+validity(waitTTL)-want)/3 + time.Millisecond)
				require.GreaterOrEqual(t, w.S2.Count(faultstore.Renew), 1, "no renewal in time")
				heal := w.S2.On(faultstore.Release, faultstore.Every, faultstore.DropRequest())
				rival := w.BeginLock(w.C1, "a")

				lost, err := w.Ended(next)
				require.Equal(t, x.base+validity(waitTTL), w.After(lost))
				require.ErrorIs(t, err, dlock.ErrLost)
				rival.StillWaits()
				w.UnlockLost(next)
				last, at := rival.Granted()
				require.WithinRange(t, at, w.Start.Add(2*time.Second+waitTTL), w.Start.Add(2*time.Second+waitTTL+2*time.Millisecond))
				heal()
				w.SleepUntil(12 * time.Second)
				w.Unlock(last)
			})
		})
	}
	t.Run("renewed", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			q := w.BeginLock(w.C2, "a")
			w.SleepUntil(2 * time.Second)
			w.Unlock(h)
			next, at := q.Granted()
			require.Equal(t, 2*time.Second, w.After(at))
			w.SleepUntil(2*time.Second + waitTTL/3)
			renewed := confirmed(t, w.S2)
			require.Equal(t, ttl-time.Since(renewed), w.Inspect("a").Holders[0].Remaining)
			w.S2.On(faultstore.Renew, faultstore.Every, faultstore.DropRequest())
			lost, _ := w.Ended(next)
			require.Equal(t, renewed.Add(validity(ttl)), lost)
			w.UnlockLost(next)
		})
	})
}

// A lease that will not be renewed has its whole TTL when Lock returns. That is also so if the
// grant came by an event, which is worth one WaitTTL only.
func TestFault54FixedLeaseByEvent(t *testing.T) {
	for name, x := range map[string]struct {
		plan  func(s *faultstore.Store)
		bound time.Duration // of the wait, from the event
	}{
		"answered":   {func(*faultstore.Store) {}, 0},
		"cut":        {func(s *faultstore.Store) { s.On(faultstore.Acquire, faultstore.Nth(2), faultstore.DropReply()) }, askGap},
		"silent":     {func(s *faultstore.Store) { s.On(faultstore.Acquire, faultstore.Nth(2), faultstore.MuteReply()) }, storeTimeout + askGap},
		"event lost": {func(s *faultstore.Store) { s.OnEvent(faultstore.EveryEvent, faultstore.DropEvent()) }, askEvery},
	} {
		t.Run(name, func(t *testing.T) {
			coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
				h := w.Lock(w.C1, "a")
				x.plan(w.S2)
				q := w.BeginLock(w.C2, "a", dlock.WithoutRenewal())
				w.SleepUntil(time.Second)
				w.Unlock(h)
				next, at := q.Granted()
				require.LessOrEqual(t, w.After(at), time.Second+x.bound)
				require.Equal(t, ttl, w.Inspect("a").Holders[0].Remaining)
				lost, err := w.Ended(next)
				require.Equal(t, at.Add(validity(ttl)), lost)
				require.ErrorIs(t, err, dlock.ErrLost)
				require.Zero(t, w.S2.Count(faultstore.Renew))
				w.UnlockLost(next)
			})
		})
	}
}
