package faults

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/require"
)

// An unknown error, once: NOSCRIPT after a flush, READONLY, LOADING. The lock call asks again with
// the same id, and its caller never sees the error.
func TestFault27UnknownErrorOnce(t *testing.T) {
	for _, text := range []string{"NOSCRIPT No matching script.", "READONLY You can't write against a read only replica.", "LOADING"} {
		t.Run(text[:7], func(t *testing.T) {
			coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
				w.S1.On(faultstore.Any, faultstore.Nth(1), faultstore.Answer(errors.New(text)))
				h := w.Lock(w.C1, "a")
				requests := w.S1.Calls(faultstore.Acquire)
				require.Len(t, requests, 2)
				require.Equal(t, requests[0].ID(), requests[1].ID())
				w.SleepUntil(4 * ttl)
				require.NoError(t, h.Err())
				from := time.Now()
				w.Unlock(h)
				require.Less(t, time.Since(from), 2*askGap)
				require.Equal(t, 2, w.S1.Count(faultstore.Release))
				require.Zero(t, w.Losses())
			})
		})
	}
}

// The server answers every call with "busy". That is no better than no answer: the hold is lost in
// time, and waiters go on when the server does.
func TestFault28ServerBusy(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		h := w.Lock(w.C1, "a")
		q := w.BeginLock(w.C2, "a")
		w.SleepUntil(4 * time.Second)
		busy := faultstore.Answer(errors.New("BUSY Redis is busy running a script."))
		heal1, heal2 := w.S1.Outage(busy), w.S2.Outage(busy)
		at, err := w.Ended(h)
		require.Equal(t, validity(ttl), w.After(at))
		require.ErrorIs(t, err, dlock.ErrLost)
		w.SleepUntil(ttl + 2*time.Second)
		q.StillWaits()
		heal1()
		heal2()
		next, at := q.Granted()
		require.LessOrEqual(t, w.After(at), ttl+3*time.Second)
		w.UnlockLost(h)
		w.Unlock(next)
		time.Sleep(200 * time.Millisecond) // until the release of the lost hold is tried again
	})
}

// The server's memory is full. New requests are refused at once with a typed error. Holds are
// renewed and released as before.
func TestFault29OutOfMemory(t *testing.T) {
	oom := fmt.Errorf("%w: OOM command not allowed when used memory > 'maxmemory'.", store.ErrRefused)
	t.Run("acquire", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "held")
			heal := w.S1.On(faultstore.Acquire, faultstore.Every, faultstore.Answer(oom))
			for _, call := range []func() (*dlock.Hold, error){
				func() (*dlock.Hold, error) { return w.C1.Mutex("a").LockContext(t.Context()) },
				func() (*dlock.Hold, error) { return w.C1.Mutex("a").TryLockContext(t.Context()) },
			} {
				_, err := call()
				require.ErrorIs(t, err, dlock.ErrRefused)
				require.NotErrorIs(t, err, dlock.ErrHeld)
				require.ErrorContains(t, err, "maxmemory")
			}
			require.Equal(t, 3, w.S1.Count(faultstore.Acquire))
			require.Zero(t, time.Since(w.Start))
			require.NotPanics(t, func() { require.False(t, w.C1.Mutex("a").TryLock()) })

			// Lock never gives up.
			m := w.C1.Mutex("a")
			locking := w.Begin(func() (*dlock.Hold, error) { m.Lock(); return nil, nil })
			w.SleepUntil(4 * ttl)
			locking.StillWaits()
			require.NoError(t, h.Err())
			w.Unlock(h)
			heal()
			_, at := locking.Granted()
			require.LessOrEqual(t, w.After(at), 4*ttl+time.Second)
			m.Unlock()
		})
	})
	t.Run("while waiting", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			w.S2.On(faultstore.Acquire, faultstore.From(2), faultstore.Answer(oom))
			at, err := w.BeginLock(w.C2, "a").Failed()
			require.ErrorIs(t, err, dlock.ErrRefused)
			require.LessOrEqual(t, w.After(at), askEvery)
			wantEmptyQueue(w, "a")
			w.Unlock(h)
		})
	})
	// A refused renewal is neither a loss nor a renewal.
	t.Run("renew", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			w.S1.On(faultstore.Renew, faultstore.Nth(1, 2), faultstore.Answer(oom))
			w.SleepUntil(2 * ttl)
			require.NoError(t, h.Err())
			last := confirmed(t, w.S1)
			w.S1.On(faultstore.Renew, faultstore.Every, faultstore.Answer(oom))
			at, err := w.Ended(h)
			require.Equal(t, last.Add(validity(ttl)), at)
			require.ErrorIs(t, err, dlock.ErrLost)
			w.UnlockLost(h)
		})
	})
}

// The key of the lock holds something else. The call fails at once with a typed error that says
// so, and does not wait.
func TestFault32KeyOfAnotherType(t *testing.T) {
	foreign := fmt.Errorf("%w: it is a list", store.ErrForeignKey)
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		w.S1.On(faultstore.Acquire, faultstore.Every, faultstore.Answer(foreign))
		m := w.C1.Mutex("a")
		_, err := m.LockContext(t.Context())
		require.ErrorIs(t, err, dlock.ErrForeignKey)
		require.NotErrorIs(t, err, dlock.ErrHeld)
		require.ErrorContains(t, err, "it is a list")
		_, err = m.TryLockContext(t.Context())
		require.ErrorIs(t, err, dlock.ErrForeignKey)

		for _, locker := range []func(){m.Lock, func() { m.TryLock() }, w.C1.RWMutex("a").RLock} {
			var panicked any
			q := w.Begin(func() (*dlock.Hold, error) {
				defer func() { panicked = recover() }()
				locker()
				return nil, nil
			})
			require.True(t, q.Returned(), "the call does not return")
			require.IsType(t, &dlock.Error{}, panicked)
			require.ErrorIs(t, panicked.(error), dlock.ErrForeignKey)
		}
		require.Equal(t, 5, w.S1.Count(faultstore.Any), "one call each")
		require.Zero(t, time.Since(w.Start))
	})
}

// The key is overwritten while a call waits. The wait ends.
func TestFault33ForeignValueWhileWaiting(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		h := w.Lock(w.C1, "a")
		w.S2.On(faultstore.Acquire, faultstore.From(2), faultstore.Answer(store.ErrForeignKey))
		at, err := w.BeginLock(w.C2, "a").Failed()
		require.ErrorIs(t, err, dlock.ErrForeignKey)
		require.LessOrEqual(t, w.After(at), askEvery)
		wantEmptyQueue(w, "a")
		w.Unlock(h)
	})
}

// The record of a hold is overwritten. The next renewal or the Unlock reports the loss, and
// nothing is retried without end.
func TestFault43OwnValueCorrupted(t *testing.T) {
	corrupt := fmt.Errorf("%w: unknown version", store.ErrForeignKey)
	t.Run("renew", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			w.SleepUntil(4 * time.Second)
			heal := w.S1.On(faultstore.Any, faultstore.Every, faultstore.Answer(corrupt))
			wantLostByRenewal(w, h)
			require.Equal(t, 1, w.S1.Count(faultstore.Renew))
			require.Equal(t, 1, w.S1.Count(faultstore.Release))
			require.Zero(t, w.C1.Stats().Releases)
			require.Equal(t, 1, w.Losses())
			w.UnlockLost(h)
			heal()
			w.SleepUntil(ttl) // by then the store has dropped the hold that was not released
		})
	})
	t.Run("release", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			heal := w.S1.On(faultstore.Any, faultstore.Every, faultstore.Answer(corrupt))
			err := h.Unlock()
			require.ErrorIs(t, err, dlock.ErrForeignKey)
			require.ErrorIs(t, err, dlock.ErrLost)
			require.Equal(t, 1, w.S1.Count(faultstore.Release))
			require.Equal(t, 1, w.Losses())
			heal()
			w.SleepUntil(ttl)
		})
	})
}

// The record is overwritten during Do, and the release is the first call to see that. Do reports
// it, because the lock was not held until the function returned.
func TestFault43ForeignDuringDo(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		var heal func()
		err := w.C1.Mutex("a").Do(t.Context(), func(context.Context) error {
			heal = w.S1.On(faultstore.Release, faultstore.Every, faultstore.Answer(store.ErrForeignKey))
			return nil
		})
		require.ErrorIs(t, err, dlock.ErrLost)
		require.ErrorIs(t, err, dlock.ErrForeignKey)
		require.Equal(t, 1, w.Losses())
		heal()
		w.SleepUntil(ttl)
	})
}

// wantEmptyQueue asserts that no request waits at the store.
func wantEmptyQueue(w *coretest.World, name string) {
	w.T.Helper()
	synctest.Wait()
	require.Empty(w.T, w.Inspect(name).Queue)
}
