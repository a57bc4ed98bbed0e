package faults

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/stretchr/testify/require"
)

// errNoServer is what a store says of a server that is down.
var errNoServer = errors.New("dial tcp: connection refused")

// wait is one kind of wait.
type wait struct {
	first bool // the outage begins before the wait
	here  bool // the process that waits has the lock itself
	begin func(w *coretest.World, ctx context.Context) func() (*dlock.Hold, error)
}

// locks returns a lock call of the first client.
func locks(w *coretest.World, ctx context.Context) func() (*dlock.Hold, error) {
	return func() (*dlock.Hold, error) { return w.C1.Mutex("a").LockContext(ctx) }
}

// waitAndUnlock waits for the lock with the first client for as long as it takes.
func waitAndUnlock(w *coretest.World) {
	if h, err := w.C1.Mutex("a").LockContext(context.Background()); err == nil {
		_ = h.Unlock()
	}
}

var waits = map[string]wait{
	"first request": {first: true, begin: locks},
	"first request of an explicit owner": {first: true, begin: func(w *coretest.World, ctx context.Context) func() (*dlock.Hold, error) {
		return locks(w, dlock.WithOwner(ctx, dlock.NewOwner()))
	}},
	"try": {first: true, begin: func(w *coretest.World, ctx context.Context) func() (*dlock.Hold, error) {
		return func() (*dlock.Hold, error) { return w.C1.Mutex("a").TryLockContext(ctx) }
	}},
	"behind another waiter of the process, first request": {first: true, begin: func(w *coretest.World, ctx context.Context) func() (*dlock.Hold, error) {
		go waitAndUnlock(w)
		synctest.Wait()
		return locks(w, ctx)
	}},
	"while this process holds, first request": {first: true, here: true, begin: locks},
	"polling": {begin: locks},
	"polling for an explicit owner": {begin: func(w *coretest.World, ctx context.Context) func() (*dlock.Hold, error) {
		return locks(w, dlock.WithOwner(ctx, dlock.NewOwner()))
	}},
	"behind another waiter of the process, polling": {begin: func(w *coretest.World, ctx context.Context) func() (*dlock.Hold, error) {
		go waitAndUnlock(w)
		synctest.Wait()
		return locks(w, ctx)
	}},
	"while this process holds, polling": {here: true, begin: locks},
}

// A deadline ends during an outage of the store. The error matches that of the context and
// ErrUnavailable, so that a handler can tell an outage from a lock that is busy. It has what the
// store has said last.
func TestFault106DeadlineDuringAnOutage(t *testing.T) {
	for how, fault := range map[string]faultstore.Fault{
		"refused": faultstore.Answer(errNoServer), "silent": faultstore.Mute(), "reply lost": faultstore.AnswerAfter(errNoServer),
	} {
		for what, kind := range waits {
			t.Run(how+"/"+what, func(t *testing.T) {
				coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
					deadlineInOutage(t, w, fault, kind, how)
				})
			})
		}
	}
}

func deadlineInOutage(t *testing.T, w *coretest.World, fault faultstore.Fault, kind wait, how string) {
	for name, end := range map[string]error{"deadline": context.DeadlineExceeded, "cancel": context.Canceled} {
		holder := w.C2
		if kind.here {
			holder = w.C1
		}
		h, err := holder.Mutex("a").LockContext(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		if end == context.DeadlineExceeded {
			ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		}
		heal := func() {}
		if kind.first {
			heal = w.S1.Outage(fault)
		}
		start := time.Now()
		q := w.Begin(kind.begin(w, ctx))
		if !kind.first {
			time.Sleep(time.Second)
			heal = w.S1.Outage(fault)
		}
		if end == context.Canceled {
			time.Sleep(2500*time.Millisecond - time.Since(start))
			cancel()
		}
		at, err := q.Failed()
		if tried := errors.Is(err, dlock.ErrUnavailable) && !errors.Is(err, end); tried {
			require.Equal(t, "deadline", name)
			require.LessOrEqual(t, at.Sub(start), 3*time.Second, "only a try ends before its context")
		} else {
			coretest.WantError(t, err, opOf(err), "a", end)
			coretest.WantError(t, err, opOf(err), "a", dlock.ErrUnavailable)
		}
		if how == "silent" {
			require.ErrorContains(t, err, "no reply from the store within")
		} else {
			require.ErrorIs(t, err, errNoServer)
		}
		cancel()
		heal()
		require.NoError(t, h.Unlock())
		time.Sleep(time.Minute)
		synctest.Wait()
	}
}

func opOf(err error) string {
	var e *dlock.Error
	if errors.As(err, &e) {
		return e.Op
	}
	return ""
}

// The store works: a deadline that ends says nothing of an outage, also while a request is under way,
// and after an outage that is over.
func TestFault106DeadlineWithoutAnOutage(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		h := w.Lock(w.C2, "a")
		ends := func(d time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			_, err := w.Begin(locks(w, ctx)).Failed()
			coretest.WantError(t, err, "lock", "a", context.DeadlineExceeded)
			return err
		}
		require.NotErrorIs(t, ends(10*time.Second), dlock.ErrUnavailable)

		// Each request takes 100 ms, and one is under way as the deadline ends.
		off := w.S1.On(faultstore.Acquire, faultstore.Every, faultstore.DelayReply(100*time.Millisecond))
		require.NotErrorIs(t, ends(100*time.Millisecond+coretest.AskEvery+50*time.Millisecond), dlock.ErrUnavailable)
		off()

		heal := w.S1.Outage(faultstore.Answer(errNoServer))
		time.AfterFunc(5*time.Second, heal)
		require.NotErrorIs(t, ends(20*time.Second), dlock.ErrUnavailable)
		w.Unlock(h)
		time.Sleep(time.Minute)
	})
}

// A call with a context that has ended already asks nobody, and says nothing of the store.
func TestFault106EndedContext(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		heal := w.S1.Outage(faultstore.Answer(errNoServer))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := w.C1.Mutex("a").LockContext(ctx)
		coretest.WantError(t, err, "lock", "a", context.Canceled)
		require.NotErrorIs(t, err, dlock.ErrUnavailable)
		require.Zero(t, w.S1.Count(faultstore.Any))
		heal()
	})
}
