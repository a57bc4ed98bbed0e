package dlock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/require"
)

// The connection that brings events is lost, and with it what was sent. When it
// is back everybody asks at once; without that, by their own asking.
func TestFault44EventsLost(t *testing.T) {
	const names = 20
	for name, bound := range map[string]time.Duration{"reconnect event": askGap, "silent": probe} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				var holds []*dlock.Hold
				var waits []*wait
				for i := range names {
					holds = append(holds, w.lock(w.c1, fmt.Sprint(i)))
					waits = append(waits, w.beginLock(w.c2, fmt.Sprint(i)))
				}
				w.s2.OnEvent(faultstore.EveryEvent, faultstore.DropEvent())
				w.sleepUntil(time.Second)
				for _, h := range holds {
					w.unlock(h)
				}
				for _, q := range waits {
					q.waits()
				}
				if bound == askGap {
					w.s2.Emit(store.Event{})
				}
				for _, q := range waits {
					h, at := q.granted()
					require.LessOrEqual(t, w.after(at), time.Second+bound)
					w.unlock(h)
				}
				require.LessOrEqual(t, w.s2.Count(faultstore.Acquire), 2*names, "more than one ask each")
			})
		})
	}
}

// The reconnection is told while a request is under way, whose answer is older
// than what was missed: there has to be another.
func TestFault44ReconnectDuringAsk(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		h := w.lock(w.c1, "a")
		reply := w.gate()
		w.s2.On(faultstore.Acquire, faultstore.Nth(1), faultstore.HoldReply(reply.ch))
		w.s2.OnEvent(faultstore.EveryEvent, faultstore.DropEvent())
		q := w.beginLock(w.c2, "a")
		w.unlock(h)
		w.s2.Emit(store.Event{})
		w.sleepUntil(time.Second)
		q.waits()
		reply.open()
		next, at := q.granted()
		require.LessOrEqual(t, w.after(at), time.Second+askGap)
		w.unlock(next)
	})
}

// The lock is released after the store has decided to queue a request and
// before the requester knows of it.
func TestFault45ReleaseBeforeQueuedReply(t *testing.T) {
	t.Run("event overtakes the reply", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			reply := w.gate()
			w.s2.On(faultstore.Acquire, faultstore.Nth(1), faultstore.HoldReply(reply.ch))
			q := w.beginLock(w.c2, "a")
			w.sleepUntil(time.Second)
			w.unlock(h)
			next, at := q.granted()
			require.Equal(t, time.Second, w.after(at))
			require.Equal(t, 1, w.s2.Count(faultstore.Acquire))
			reply.open() // "queued", a second late
			w.sleepUntil(4 * ttl)
			require.NoError(t, next.Err())
			w.unlock(next)
		})
	})
	t.Run("reply lost", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			w.s2.On(faultstore.Acquire, faultstore.Every, faultstore.MuteReply())
			q := w.beginLock(w.c2, "a")
			w.sleepUntil(time.Second)
			w.unlock(h)
			next, at := q.granted()
			require.Equal(t, time.Second, w.after(at))
			w.sleepUntil(2 * time.Second)
			w.unlock(next)
			require.True(t, w.s2.Calls(faultstore.Release)[0].Refs[0].Bury, "a request is still under way")
			w.sleepUntil(timeout)
		})
	})
	t.Run("event lost", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			reply := w.gate()
			w.s2.On(faultstore.Acquire, faultstore.Nth(1), faultstore.HoldReply(reply.ch))
			w.s2.OnEvent(faultstore.EveryEvent, faultstore.DropEvent())
			q := w.beginLock(w.c2, "a")
			w.unlock(h)
			w.sleepUntil(time.Second)
			reply.open()
			next, at := q.granted()
			require.LessOrEqual(t, w.after(at), time.Second+probe)
			w.unlock(next)
		})
	})
}

// A holder dies and nobody says so: the waiter comes in when the lease is over.
func TestFault48HolderDiesSilently(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.outsider("a", "dead", store.Exclusive)
		w.sleepUntil(700 * time.Millisecond)
		q := w.beginLock(w.c2, "a")
		h, at := q.granted()
		require.WithinRange(t, at, w.start.Add(ttl), w.start.Add(ttl+50*time.Millisecond))
		require.LessOrEqual(t, w.s2.Count(faultstore.Acquire), int(ttl/probe)+2)
		w.unlock(h)
	})
}

// The waiter at the head dies. Those behind lose no more than its WaitTTL.
func TestFault49HeadOfQueueDies(t *testing.T) {
	t.Run("before its turn", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			w.outsider("a", "dead", store.Exclusive)
			q := w.beginLock(w.c2, "a")
			require.Len(t, w.inspect("a").Queue, 2)
			w.sleepUntil(8 * time.Second)
			w.unlock(h)
			next, at := q.granted()
			require.Equal(t, 8*time.Second, w.after(at))
			w.unlock(next)
		})
	})
	t.Run("at its turn", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			for i := range 3 {
				w.outsider("a", fmt.Sprint("dead ", i), store.Exclusive)
			}
			q := w.beginLock(w.c2, "a")
			w.sleepUntil(time.Second)
			w.unlock(h)
			next, at := q.granted()
			require.WithinRange(t, at, w.start.Add(time.Second+waitTTL), w.start.Add(time.Second+waitTTL+50*time.Millisecond))
			w.unlock(next)
		})
	})
}

// A client is woken and cut off at that moment, the baton in its hand. Those
// behind wait for its WaitTTL; it gets its turn later.
func TestFault50WokenWaiterDies(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		h := w.lock(w.c1, "a")
		woken := w.beginLock(w.c2, "a")
		w.sleepUntil(100 * time.Millisecond)
		behind := w.beginLock(w.c1, "a")
		w.sleepUntil(900 * time.Millisecond)
		heal := w.s2.Outage(faultstore.Mute())
		w.sleepUntil(time.Second)
		w.unlock(h)
		require.Len(t, w.inspect("a").Holders, 1, "the fault has not bitten")

		next, at := behind.granted()
		require.WithinRange(t, at, w.start.Add(time.Second+waitTTL), w.start.Add(time.Second+waitTTL+50*time.Millisecond))
		woken.waits()
		w.sleepUntil(10 * time.Second)
		heal()
		w.sleepUntil(15 * time.Second)
		woken.waits()
		w.unlock(next)
		next, at = woken.granted()
		require.Equal(t, 15*time.Second, w.after(at))
		w.unlock(next)
	})
}

// A flood of events that nobody has sent: what they say is not believed, and
// what they cost is bounded.
func TestFault54ForgedEvents(t *testing.T) {
	const flood, over = 100_000, time.Second
	for name, forge := range map[string]func(own string, told uint64) store.Event{
		"unknown id": func(string, uint64) store.Event {
			return store.Event{ID: "0123456789abcdef0123456789abcdef", Token: 1 << 60}
		},
		"own id, no token":   func(own string, _ uint64) store.Event { return store.Event{ID: own} },
		"own id, past token": func(own string, told uint64) store.Event { return store.Event{ID: own, Token: told} },
		"reconnected":        func(string, uint64) store.Event { return store.Event{} },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				h := w.lock(w.c1, "a")
				q := w.beginLock(w.c2, "a")
				ask := w.s2.Calls(faultstore.Acquire)[0]
				e := forge(ask.ID(), ask.Result.Grant.Token)
				for range flood / 2 {
					w.s2.Emit(e)
				}
				for range flood / 2 {
					w.s2.Emit(e)
					time.Sleep(over / (flood / 2))
				}
				synctest.Wait()
				q.waits()
				require.NoError(t, h.Err())
				asks := w.s2.Count(faultstore.Acquire)
				if name == "unknown id" {
					require.Equal(t, 1, asks)
				}
				require.LessOrEqual(t, asks, int(over/askGap)+2)
				require.Less(t, w.s1.Count(faultstore.Any), 3)

				w.unlock(h)
				next, at := q.granted()
				require.Equal(t, over, w.after(at))
				w.unlock(next)
			})
		})
	}
}

// Ten thousand wait in one process. The store sees one of them at a time, and
// each hand-over costs it the same few calls.
func TestFault55TenThousandWaiters(t *testing.T) {
	const waiters = 10_000
	inWorld(t, nil, func(t *testing.T, w *world) {
		h := w.lock(w.c2, "a")
		done := make(chan struct{}, waiters)
		for range waiters {
			go func() {
				h, err := w.c1.Mutex("a").LockContext(t.Context())
				if err == nil {
					err = h.Unlock()
				}
				if err != nil {
					t.Error(err)
				}
				done <- struct{}{}
			}()
		}
		synctest.Wait()
		require.Equal(t, 1, w.s1.Count(faultstore.Any))
		require.Len(t, w.inspect("a").Queue, 1)

		w.sleepUntil(time.Second)
		before := w.s1.Count(faultstore.Any)
		w.unlock(h)
		for range waiters {
			w.await(done)
		}
		require.Zero(t, time.Since(w.start)-time.Second, "somebody was not woken")
		require.Less(t, float64(w.s1.Count(faultstore.Any)-before)/waiters, 3.1, "calls for a hand-over")
	})
}
