package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/require"
)

// The connection for events breaks, and the events are lost. When it is back, every waiter asks at
// once. Without the reconnection every waiter asks by its own timer.
func TestFault44EventsLost(t *testing.T) {
	const names = 20
	for name, bound := range map[string]time.Duration{"reconnect event": askGap, "silent": askEvery} {
		t.Run(name, func(t *testing.T) {
			coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
				var holds []*dlock.Hold
				var waits []*coretest.Call
				for i := range names {
					holds = append(holds, w.Lock(w.C1, fmt.Sprint(i)))
					waits = append(waits, w.BeginLock(w.C2, fmt.Sprint(i)))
				}
				w.S2.OnEvent(faultstore.EveryEvent, faultstore.DropEvent())
				w.SleepUntil(time.Second)
				for _, h := range holds {
					w.Unlock(h)
				}
				for _, q := range waits {
					q.StillWaits()
				}
				if bound == askGap {
					w.S2.Emit(store.Event{})
				}
				for _, q := range waits {
					h, at := q.Granted()
					require.LessOrEqual(t, w.After(at), time.Second+bound)
					w.Unlock(h)
				}
				require.LessOrEqual(t, w.S2.Count(faultstore.Acquire), 2*names, "a waiter has asked more than once more")
			})
		})
	}
}

// The reconnection is reported while a request is under way. Its answer is older than the events
// that were missed, so another request has to follow.
func TestFault44ReconnectDuringAsk(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		h := w.Lock(w.C1, "a")
		reply := w.Gate()
		w.S2.On(faultstore.Acquire, faultstore.Nth(1), faultstore.HoldReply(reply.C))
		w.S2.OnEvent(faultstore.EveryEvent, faultstore.DropEvent())
		q := w.BeginLock(w.C2, "a")
		w.Unlock(h)
		w.S2.Emit(store.Event{})
		w.SleepUntil(time.Second)
		q.StillWaits()
		reply.Open()
		next, at := q.Granted()
		require.LessOrEqual(t, w.After(at), time.Second+askGap)
		w.Unlock(next)
	})
}

// The lock is released after the store has queued a request and before the waiter knows that. The
// event waits for the end of the call that the waiter makes on its own goroutine.
func TestFault45ReleaseBeforeQueuedReply(t *testing.T) {
	t.Run("event overtakes the reply", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			reply := w.Gate()
			w.S2.On(faultstore.Acquire, faultstore.Nth(1), faultstore.HoldReply(reply.C))
			q := w.BeginLock(w.C2, "a")
			w.SleepUntil(time.Second)
			w.Unlock(h)
			w.SleepUntil(time.Second + askGap)
			q.StillWaits()
			reply.Open()
			next, at := q.Granted()
			require.Equal(t, time.Second+askGap, w.After(at), "the event was lost")
			require.Equal(t, 1, w.S2.Count(faultstore.Acquire))
			w.SleepUntil(4 * ttl)
			require.NoError(t, next.Err())
			w.Unlock(next)
		})
	})
	t.Run("event overtakes a reply that never comes in time", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			reply := w.Gate()
			w.S2.On(faultstore.Acquire, faultstore.Nth(1), faultstore.HoldReply(reply.C))
			q := w.BeginLock(w.C2, "a")
			w.SleepUntil(time.Second)
			w.Unlock(h)
			next, at := q.Granted()
			require.Equal(t, storeTimeout, w.After(at))
			require.Equal(t, 1, w.S2.Count(faultstore.Acquire))
			reply.Open() // the reply "queued" comes after the caller has given it up
			w.SleepUntil(4 * ttl)
			require.NoError(t, next.Err())
			w.Unlock(next)
		})
	})
	t.Run("reply lost", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			w.S2.On(faultstore.Acquire, faultstore.Every, faultstore.MuteReply())
			q := w.BeginLock(w.C2, "a")
			w.SleepUntil(time.Second)
			w.Unlock(h)
			next, at := q.Granted()
			require.Equal(t, storeTimeout, w.After(at))
			w.Unlock(next)
			require.True(t, w.S2.Calls(faultstore.Release)[0].Refs[0].Bury, "a request may still be under way")
			w.SleepUntil(storeTimeout)
		})
	})
	t.Run("event lost", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			reply := w.Gate()
			w.S2.On(faultstore.Acquire, faultstore.Nth(1), faultstore.HoldReply(reply.C))
			w.S2.OnEvent(faultstore.EveryEvent, faultstore.DropEvent())
			q := w.BeginLock(w.C2, "a")
			w.Unlock(h)
			w.SleepUntil(time.Second)
			reply.Open()
			next, at := q.Granted()
			require.LessOrEqual(t, w.After(at), time.Second+askEvery)
			w.Unlock(next)
		})
	})
}

// A holder dies and says nothing. The waiter gets the lock when the lease is over.
func TestFault48HolderDiesSilently(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		w.DeadProcess("a", "dead", store.Exclusive)
		w.SleepUntil(700 * time.Millisecond)
		q := w.BeginLock(w.C2, "a")
		h, at := q.Granted()
		require.WithinRange(t, at, w.Start.Add(ttl), w.Start.Add(ttl+50*time.Millisecond))
		require.LessOrEqual(t, w.S2.Count(faultstore.Acquire), int(ttl/askEvery)+2)
		w.Unlock(h)
	})
}

// The waiter at the head of the queue dies. The waiters behind it lose no more than its WaitTTL.
func TestFault49HeadOfQueueDies(t *testing.T) {
	t.Run("while another holds", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			w.DeadProcess("a", "dead", store.Exclusive)
			q := w.BeginLock(w.C2, "a")
			require.Len(t, w.Inspect("a").Queue, 2)
			w.SleepUntil(8 * time.Second)
			w.Unlock(h)
			next, at := q.Granted()
			require.Equal(t, 8*time.Second, w.After(at))
			w.Unlock(next)
		})
	})
	t.Run("when it is promoted", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			for i := range 3 {
				w.DeadProcess("a", fmt.Sprint("dead ", i), store.Exclusive)
			}
			q := w.BeginLock(w.C2, "a")
			w.SleepUntil(time.Second)
			w.Unlock(h)
			next, at := q.Granted()
			require.WithinRange(t, at, w.Start.Add(time.Second+waitTTL), w.Start.Add(time.Second+waitTTL+50*time.Millisecond))
			w.Unlock(next)
		})
	})
}

// A client is cut off at the moment of its grant. The waiters behind it wait for its WaitTTL, and
// it gets the lock later.
func TestFault50WokenWaiterDies(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		h := w.Lock(w.C1, "a")
		woken := w.BeginLock(w.C2, "a")
		w.SleepUntil(100 * time.Millisecond)
		behind := w.BeginLock(w.C1, "a")
		w.SleepUntil(900 * time.Millisecond)
		heal := w.S2.Outage(faultstore.Mute())
		w.SleepUntil(time.Second)
		w.Unlock(h)
		require.Len(t, w.Inspect("a").Holders, 1, "the fault has had no effect")

		next, at := behind.Granted()
		require.WithinRange(t, at, w.Start.Add(time.Second+waitTTL), w.Start.Add(time.Second+waitTTL+50*time.Millisecond))
		woken.StillWaits()
		w.SleepUntil(10 * time.Second)
		heal()
		w.SleepUntil(15 * time.Second)
		woken.StillWaits()
		w.Unlock(next)
		next, at = woken.Granted()
		require.Equal(t, 15*time.Second, w.After(at))
		w.Unlock(next)
	})
}
