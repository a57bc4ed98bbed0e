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

// toldByRenewal asserts that h is lost when the next renewal is sent, within a
// third of its validity, and not later.
func (w *world) toldByRenewal(h *dlock.Hold) {
	w.t.Helper()
	from := time.Now()
	at, err := w.ended(h)
	require.ErrorIs(w.t, err, dlock.ErrLost)
	require.LessOrEqual(w.t, at.Sub(from), validity(ttl)/3)
	renewals := w.s1.Calls(faultstore.Renew)
	require.Equal(w.t, renewals[len(renewals)-1].Sent, at)
}

// The store restarts without what it knew. The holder is told by its next
// renewal, waiters come in by their own asking, tokens still grow.
func TestFault15RestartWithLoss(t *testing.T) {
	for name, reconnects := range map[string]bool{"silent": false, "reconnect event": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				h := w.lock(w.c1, "a")
				q := w.beginLock(w.c2, "a")
				w.sleepUntil(4 * time.Second)
				w.restart()
				bound := probe
				if reconnects {
					bound = askGap
					w.s1.Emit(store.Event{})
					w.s2.Emit(store.Event{})
				}
				next, at := q.granted()
				require.LessOrEqual(t, w.after(at), 4*time.Second+bound)
				require.Greater(t, next.Token(), h.Token())

				w.toldByRenewal(h)
				require.Equal(t, 1, w.toldLost())
				w.sleepUntil(4 * ttl)
				require.NoError(t, next.Err(), "the old holder's clean-up took the new hold")
				w.unlockLost(h)
				w.unlock(next)
			})
		})
	}
	// The same with an outage between, in which the holder was not told lost,
	// for nobody knew.
	t.Run("after an outage", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			w.sleepUntil(4 * time.Second)
			heal := w.s1.Outage(faultstore.DropRequest())
			w.restart()
			w.sleepUntil(15 * time.Second)
			require.NoError(t, h.Err())
			heal()
			at, err := w.ended(h)
			require.ErrorIs(t, err, dlock.ErrLost)
			require.Less(t, w.after(at), validity(ttl))
			w.unlockLost(h)
			next := w.lock(w.c2, "a")
			require.Greater(t, next.Token(), h.Token())
			w.unlock(next)
		})
	})
}

// FLUSHALL: every hold and every place is gone at once. Each holder is told by
// its next renewal, once; nobody waits for a wake-up that will not come.
func TestFault17Flushed(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		var holds []*dlock.Hold
		var waits []*wait
		for i := range 3 {
			holds = append(holds, w.lock(w.c1, fmt.Sprint(i)))
		}
		for i := range 3 {
			waits = append(waits, w.beginLock(w.c2, fmt.Sprint(i)), w.beginLock(w.c1, fmt.Sprint(i)))
		}
		w.sleepUntil(4 * time.Second)
		w.restart()
		for range 3 { // one of each pair comes in, and the other after it
			w.sleepUntil(4*time.Second + probe)
		}
		for _, h := range holds {
			require.NoError(t, h.Err())
		}
		for i := 0; i < len(waits); i += 2 {
			a, b := waits[i], waits[i+1]
			if !a.returned() {
				a, b = b, a
			}
			next, _ := a.granted()
			require.Greater(t, next.Token(), holds[2].Token())
			w.unlock(next)
			next, _ = b.granted()
			w.unlock(next)
		}
		w.toldByRenewal(holds[0])
		require.Equal(t, 3, w.toldLost())
		for _, h := range holds {
			w.unlockLost(h)
		}
	})
}

// DEL by an operator: one hold is gone, its waiter is promoted, its holder told.
func TestFault17Deleted(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.storeLostData = true
		h := w.lock(w.c1, "a")
		q := w.beginLock(w.c2, "a")
		w.sleepUntil(4 * time.Second)
		_, err := w.memory.Break(t.Context(), "a")
		require.NoError(t, err)
		next, at := q.granted()
		require.Equal(t, 4*time.Second, w.after(at))
		require.Greater(t, next.Token(), h.Token())
		w.toldByRenewal(h)
		w.unlockLost(h)
		w.sleepUntil(4 * ttl)
		require.NoError(t, next.Err())
		w.unlock(next)
	})
}

// The holder unlocks before its next renewal would have told it: the release
// finds nothing, which is a loss and not success.
func TestFault17UnlockFindsNothing(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		h := w.lock(w.c1, "a")
		w.sleepUntil(4 * time.Second)
		w.restart()
		next := w.lock(w.c2, "a")
		require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		require.Equal(t, 1, w.toldLost())
		require.NoError(t, next.Err())
		require.Len(t, w.inspect("a").Holders, 1)
		w.unlock(next)
	})
}

// One key is evicted: its holder is told by the next renewal, and the others of
// the same batch go on.
func TestFault30OneKeyEvicted(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		gone := w.lock(w.c1, "gone")
		var others []*dlock.Hold
		for i := range 16 {
			others = append(others, w.lock(w.c1, fmt.Sprint(i)))
		}
		w.sleepUntil(4 * time.Second)
		_, err := w.memory.Break(t.Context(), "gone")
		require.NoError(t, err)
		at, err := w.ended(gone)
		require.LessOrEqual(t, w.after(at), 4*time.Second+validity(ttl)/3)
		require.ErrorIs(t, err, dlock.ErrLost)
		synctest.Wait()
		batch := 0
		for _, renewal := range w.s1.Calls(faultstore.Renew) {
			if renewal.Result.Err != nil {
				batch = len(renewal.Refs)
			}
		}
		require.Greater(t, batch, 1, "it had a call of its own")
		w.sleepUntil(4 * ttl)
		for _, h := range others {
			w.unlock(h)
		}
		require.Equal(t, 1, w.toldLost())
		w.unlockLost(gone)
	})
}
