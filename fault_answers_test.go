package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/require"
)

// An error of no known kind (NOSCRIPT after a flush, READONLY, LOADING), once:
// the same logical call asks again and its caller never sees it.
func TestFault27UnknownErrorOnce(t *testing.T) {
	for _, text := range []string{"NOSCRIPT No matching script.", "READONLY You can't write against a read only replica.", "LOADING"} {
		t.Run(text[:7], func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				w.s1.On(faultstore.Any, faultstore.Nth(1), faultstore.Answer(errors.New(text)))
				h := w.lock(w.c1, "a")
				asks := w.s1.Calls(faultstore.Acquire)
				require.Len(t, asks, 2)
				require.Equal(t, asks[0].ID(), asks[1].ID())
				w.sleepUntil(4 * ttl)
				require.NoError(t, h.Err())
				from := time.Now()
				w.unlock(h)
				require.Less(t, time.Since(from), 2*askGap)
				require.Equal(t, 2, w.s1.Count(faultstore.Release))
				require.Zero(t, w.toldLost())
			})
		})
	}
}

// The server answers everybody that it is busy. That is as good as no answer:
// the holder loses in time, waiters go on when the server does.
func TestFault28ServerBusy(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		h := w.lock(w.c1, "a")
		q := w.beginLock(w.c2, "a")
		w.sleepUntil(4 * time.Second)
		busy := faultstore.Answer(errors.New("BUSY Redis is busy running a script."))
		heal1, heal2 := w.s1.Outage(busy), w.s2.Outage(busy)
		at, err := w.ended(h)
		require.Equal(t, validity(ttl), w.after(at))
		require.ErrorIs(t, err, dlock.ErrLost)
		w.sleepUntil(ttl + 2*time.Second)
		q.waits()
		heal1()
		heal2()
		next, at := q.granted()
		require.LessOrEqual(t, w.after(at), ttl+3*time.Second)
		w.unlockLost(h)
		w.unlock(next)
		time.Sleep(200 * time.Millisecond) // until the lost hold's release is tried again
	})
}

// Memory is full: who asks is refused with a typed error at once, who holds
// goes on and can release.
func TestFault29OutOfMemory(t *testing.T) {
	oom := fmt.Errorf("%w: OOM command not allowed when used memory > 'maxmemory'.", store.ErrRefused)
	t.Run("acquire", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "held")
			heal := w.s1.On(faultstore.Acquire, faultstore.Every, faultstore.Answer(oom))
			for _, call := range []func() (*dlock.Hold, error){
				func() (*dlock.Hold, error) { return w.c1.Mutex("a").LockContext(t.Context()) },
				func() (*dlock.Hold, error) { return w.c1.Mutex("a").TryLockContext(t.Context()) },
			} {
				_, err := call()
				require.ErrorIs(t, err, dlock.ErrRefused)
				require.NotErrorIs(t, err, dlock.ErrHeld)
				require.ErrorContains(t, err, "maxmemory")
			}
			require.Equal(t, 3, w.s1.Count(faultstore.Acquire))
			require.Zero(t, time.Since(w.start))
			require.NotPanics(t, func() { require.False(t, w.c1.Mutex("a").TryLock()) })

			// Lock never gives up.
			m := w.c1.Mutex("a")
			locking := w.begin(func() (*dlock.Hold, error) { m.Lock(); return nil, nil })
			w.sleepUntil(4 * ttl)
			locking.waits()
			require.NoError(t, h.Err())
			w.unlock(h)
			heal()
			_, at := locking.granted()
			require.LessOrEqual(t, w.after(at), 4*ttl+time.Second)
			m.Unlock()
		})
	})
	t.Run("while waiting", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			w.s2.On(faultstore.Acquire, faultstore.From(2), faultstore.Answer(oom))
			at, err := w.beginLock(w.c2, "a").failed()
			require.ErrorIs(t, err, dlock.ErrRefused)
			require.LessOrEqual(t, w.after(at), probe)
			w.nothingQueued("a")
			w.unlock(h)
		})
	})
	// Whatever a store may say of renewals: refused is not lost, and not renewed.
	t.Run("renew", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			w.s1.On(faultstore.Renew, faultstore.Nth(1, 2), faultstore.Answer(oom))
			w.sleepUntil(2 * ttl)
			require.NoError(t, h.Err())
			last := confirmed(t, w.s1)
			w.s1.On(faultstore.Renew, faultstore.Every, faultstore.Answer(oom))
			at, err := w.ended(h)
			require.Equal(t, last.Add(validity(ttl)), at)
			require.ErrorIs(t, err, dlock.ErrLost)
			w.unlockLost(h)
		})
	})
}

// Something else stands where the lock should be: a typed error at once, which
// says what the store found, and no waiting.
func TestFault32KeyOfAnotherType(t *testing.T) {
	foreign := fmt.Errorf("%w: it is a list", store.ErrForeignKey)
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.s1.On(faultstore.Acquire, faultstore.Every, faultstore.Answer(foreign))
		m := w.c1.Mutex("a")
		_, err := m.LockContext(t.Context())
		require.ErrorIs(t, err, dlock.ErrForeignKey)
		require.NotErrorIs(t, err, dlock.ErrHeld)
		require.ErrorContains(t, err, "it is a list")
		_, err = m.TryLockContext(t.Context())
		require.ErrorIs(t, err, dlock.ErrForeignKey)

		for _, locker := range []func(){m.Lock, func() { m.TryLock() }, w.c1.RWMutex("a").RLock} {
			var panicked any
			q := w.begin(func() (*dlock.Hold, error) {
				defer func() { panicked = recover() }()
				locker()
				return nil, nil
			})
			require.True(t, q.returned(), "it goes on trying")
			require.IsType(t, &dlock.Error{}, panicked)
			require.ErrorIs(t, panicked.(error), dlock.ErrForeignKey)
		}
		require.Equal(t, 5, w.s1.Count(faultstore.Any), "one call each")
		require.Zero(t, time.Since(w.start))
	})
}

// The same found while waiting: the wait ends.
func TestFault33ForeignValueWhileWaiting(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		h := w.lock(w.c1, "a")
		w.s2.On(faultstore.Acquire, faultstore.From(2), faultstore.Answer(store.ErrForeignKey))
		at, err := w.beginLock(w.c2, "a").failed()
		require.ErrorIs(t, err, dlock.ErrForeignKey)
		require.LessOrEqual(t, w.after(at), probe)
		w.nothingQueued("a")
		w.unlock(h)
	})
}

// Our own value was overwritten under the holder: it is told by the next
// renewal, or finds out when it unlocks; nothing is tried without end.
func TestFault43OwnValueCorrupted(t *testing.T) {
	corrupt := fmt.Errorf("%w: unknown version", store.ErrForeignKey)
	t.Run("renew", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			w.sleepUntil(4 * time.Second)
			heal := w.s1.On(faultstore.Any, faultstore.Every, faultstore.Answer(corrupt))
			w.toldByRenewal(h)
			require.Equal(t, 1, w.s1.Count(faultstore.Renew))
			require.Equal(t, 1, w.s1.Count(faultstore.Release))
			require.Zero(t, dlock.Chores(w.c1))
			require.Equal(t, 1, w.toldLost())
			w.unlockLost(h)
			heal()
			w.sleepUntil(ttl) // by then the store has dropped what nobody released
		})
	})
	t.Run("release", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			heal := w.s1.On(faultstore.Any, faultstore.Every, faultstore.Answer(corrupt))
			err := h.Unlock()
			require.ErrorIs(t, err, dlock.ErrForeignKey)
			require.ErrorIs(t, err, dlock.ErrLost)
			require.Equal(t, 1, w.s1.Count(faultstore.Release))
			require.Equal(t, 1, w.toldLost())
			heal()
			w.sleepUntil(ttl)
		})
	})
}

// What Do held was overwritten meanwhile, and its release is the first to see that. Do
// says so, for the lock was not held until the function returned.
func TestFault43ForeignDuringDo(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		var heal func()
		err := w.c1.Mutex("a").Do(t.Context(), func(context.Context) error {
			heal = w.s1.On(faultstore.Release, faultstore.Every, faultstore.Answer(store.ErrForeignKey))
			return nil
		})
		require.ErrorIs(t, err, dlock.ErrLost)
		require.ErrorIs(t, err, dlock.ErrForeignKey)
		require.Equal(t, 1, w.toldLost())
		heal()
		w.sleepUntil(ttl)
	})
}

// nothingQueued asserts that nobody waits at the store.
func (w *world) nothingQueued(name string) {
	w.t.Helper()
	synctest.Wait()
	require.Empty(w.t, w.inspect(name).Queue)
}
