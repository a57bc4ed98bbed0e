package dlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/stretchr/testify/require"
)

// An event brings a promotion that has expired, and meanwhile others held. Its
// token is not above the last that a confirmed answer told, so it is refused.
func TestFault54LateEventOfExpiredPromotion(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		h := w.lock(w.c1, "a")
		q := w.beginLock(w.c2, "a")
		late := w.gate()
		w.s2.OnEvent(faultstore.NthEvent(1), faultstore.HoldEvent(late.ch))
		w.sleepUntil(500 * time.Millisecond)
		heal := w.s2.On(faultstore.Any, faultstore.Every, faultstore.DropRequest())
		w.sleepUntil(time.Second)
		w.unlock(h) // the second client is promoted, and does not hear of it
		promoted := w.inspect("a").Holders[0].Token
		rival, _ := w.beginLock(w.c1, "a").granted() // when that has run out
		heal()
		w.sleepUntil(9 * time.Second)
		asks := w.s2.Calls(faultstore.Acquire)
		confirmed := asks[len(asks)-1].Result
		require.NoError(t, confirmed.Err)
		require.GreaterOrEqual(t, confirmed.Grant.Token, promoted)
		require.Greater(t, rival.Token(), promoted)

		late.open()
		q.waits()
		require.NoError(t, rival.Err())
		w.sleepUntil(10 * time.Second)
		w.unlock(rival)
		next, at := q.granted()
		require.Equal(t, 10*time.Second, w.after(at))
		require.Greater(t, next.Token(), rival.Token())
		w.unlock(next)
	})
}

// The same when no answer has been confirmed since: the token is new, but the
// time for which the event could grant is over. It is a reason to ask, no more.
func TestFault54LateEventIsAHint(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		h := w.lock(w.c1, "a")
		q := w.beginLock(w.c2, "a")
		late := w.gate()
		w.s2.OnEvent(faultstore.NthEvent(1), faultstore.HoldEvent(late.ch))
		w.sleepUntil(500 * time.Millisecond)
		heal := w.s2.On(faultstore.Acquire, faultstore.Every, faultstore.DropRequest())
		w.sleepUntil(time.Second)
		w.unlock(h)
		w.sleepUntil(validity(waitTTL))
		require.Len(t, w.inspect("a").Holders, 1)
		asked := w.s2.Count(faultstore.Acquire)
		heal()
		late.open()
		next, at := q.granted()
		require.Equal(t, validity(waitTTL), w.after(at))
		require.Equal(t, asked+1, w.s2.Count(faultstore.Acquire), "granted without an answer")
		w.s2.On(faultstore.Renew, faultstore.Every, faultstore.DropRequest())
		lost, _ := w.ended(next)
		require.Equal(t, at.Add(validity(ttl)), lost)
		w.unlockLost(next)
	})
}

// A grant by event is as good as the place was: from the sending of the last
// confirmed ask, WaitTTL less the margin. What the store may have done since,
// and when the event came, does not count. Renewed at once, it gets its TTL.
func TestFault54GrantByEventCountsFromConfirmedAsk(t *testing.T) {
	second := probe // when the second ask is sent
	for name, x := range map[string]struct {
		plan func(s *faultstore.Store)
		base time.Duration
	}{
		"first ask": {func(s *faultstore.Store) {
			s.On(faultstore.Acquire, faultstore.From(2), faultstore.Mute())
		}, 0},
		"second ask": {func(s *faultstore.Store) {}, second},
		"second ask applied, not confirmed": {func(s *faultstore.Store) {
			s.On(faultstore.Acquire, faultstore.From(2), faultstore.MuteReply())
		}, 0},
		"second ask, slow": {func(s *faultstore.Store) {
			s.On(faultstore.Acquire, faultstore.Nth(2), faultstore.DelayRequest(200*time.Millisecond))
		}, second},
		"none confirmed": {func(s *faultstore.Store) {
			s.On(faultstore.Acquire, faultstore.Every, faultstore.MuteReply())
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				h := w.lock(w.c1, "a")
				x.plan(w.s2)
				w.s2.On(faultstore.Renew, faultstore.Every, faultstore.Mute())
				q := w.beginLock(w.c2, "a")
				w.sleepUntil(2 * time.Second)
				w.unlock(h)
				next, at := q.granted()
				require.Equal(t, 2*time.Second, w.after(at))
				synctest.Wait()
				require.Equal(t, 1, w.s2.Count(faultstore.Renew), "renewed at once")
				heal := w.s2.On(faultstore.Release, faultstore.Every, faultstore.DropRequest())
				rival := w.beginLock(w.c1, "a")

				lost, err := w.ended(next)
				require.Equal(t, x.base+validity(waitTTL), w.after(lost))
				require.ErrorIs(t, err, dlock.ErrLost)
				rival.waits()
				w.unlockLost(next)
				last, at := rival.granted()
				require.WithinRange(t, at, w.start.Add(2*time.Second+waitTTL), w.start.Add(2*time.Second+waitTTL+2*time.Millisecond))
				heal()
				w.sleepUntil(12 * time.Second)
				w.unlock(last)
			})
		})
	}
	t.Run("renewed", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			q := w.beginLock(w.c2, "a")
			w.sleepUntil(2 * time.Second)
			w.unlock(h)
			next, at := q.granted()
			synctest.Wait()
			require.Equal(t, ttl, w.inspect("a").Holders[0].Remaining)
			w.s2.On(faultstore.Renew, faultstore.Every, faultstore.DropRequest())
			lost, _ := w.ended(next)
			require.Equal(t, at.Add(validity(ttl)), lost)
			w.unlockLost(next)
		})
	})
}

// A lease that will not be renewed has its whole TTL when Lock returns, also
// when its grant came by an event, which is worth a WaitTTL only.
func TestFault54FixedLeaseByEvent(t *testing.T) {
	for name, x := range map[string]struct {
		plan  func(s *faultstore.Store)
		bound time.Duration // of the wait, from the event
	}{
		"answered":   {func(*faultstore.Store) {}, 0},
		"cut":        {func(s *faultstore.Store) { s.On(faultstore.Acquire, faultstore.Nth(2), faultstore.DropReply()) }, askGap},
		"mute":       {func(s *faultstore.Store) { s.On(faultstore.Acquire, faultstore.Nth(2), faultstore.MuteReply()) }, timeout + askGap},
		"event lost": {func(s *faultstore.Store) { s.OnEvent(faultstore.EveryEvent, faultstore.DropEvent()) }, probe},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				h := w.lock(w.c1, "a")
				x.plan(w.s2)
				q := w.beginLock(w.c2, "a", dlock.WithoutRenewal())
				w.sleepUntil(time.Second)
				w.unlock(h)
				next, at := q.granted()
				require.LessOrEqual(t, w.after(at), time.Second+x.bound)
				require.Equal(t, ttl, w.inspect("a").Holders[0].Remaining)
				lost, err := w.ended(next)
				require.Equal(t, at.Add(validity(ttl)), lost)
				require.ErrorIs(t, err, dlock.ErrLost)
				require.Zero(t, w.s2.Count(faultstore.Renew))
				w.unlockLost(next)
			})
		})
	}
}
