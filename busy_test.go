package dlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// heldBy is the HeldBy of an *Error.
func heldBy(t *testing.T, err error) string {
	t.Helper()
	var e *dlock.Error
	require.ErrorAs(t, err, &e)
	return e.HeldBy
}

// heldFor is how long the holder that the error names has had the lock.
func heldFor(t *testing.T, err error) time.Duration {
	t.Helper()
	var e *dlock.Error
	require.ErrorAs(t, err, &e)
	return e.HeldFor
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// A busy lock and an ended wait name the holder, in another process.
func TestErrorNamesTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		holder := coretest.Open(t, s, &dlock.Options{Label: "web-3:812"})
		c := coretest.Open(t, s.Peer(), nil)
		h := coretest.MustLock(t, t.Context(), holder.Mutex("sku/4711"))
		began := time.Now()
		m := c.Mutex("sku/4711")

		_, err := m.TryLockContext(t.Context())
		coretest.WantError(t, err, "trylock", "sku/4711", dlock.ErrHeld)
		assert.Equal(t, "web-3:812", heldBy(t, err))
		assert.Equal(t, `dlock: trylock "sku/4711": lock is held by another owner: held by web-3:812`, err.Error())

		for what, ctx := range map[string]context.Context{
			"no owner":        t.Context(),
			"private owner":   h.Context(t.Context()), // of another client, so of no use here
			"explicit owner ": dlock.WithOwner(t.Context(), dlock.NewOwner()),
		} {
			for _, d := range []time.Duration{time.Millisecond, time.Second, 10 * time.Second} {
				ctx, cancel := context.WithTimeout(ctx, d)
				_, err = m.LockContext(ctx)
				cancel()
				coretest.WantError(t, err, "lock", "sku/4711", context.DeadlineExceeded)
				assert.NotErrorIs(t, err, dlock.ErrUnavailable, "the store has answered")
				assert.Equal(t, "web-3:812", heldBy(t, err), what)
				held := time.Since(began)
				assert.InDelta(t, held, heldFor(t, err), 1, what) // an age is at least a nanosecond
				if held >= 10*time.Second {
					held = held.Truncate(time.Second)
				}
				assert.Equal(t, `dlock: lock "sku/4711": context deadline exceeded: held by web-3:812 for `+held.String(), err.Error(), what)
			}
		}
		require.NoError(t, h.Unlock())
	})
}

// Each of several waiters of a process names the holder, also those that make no request.
func TestEachWaiterNamesTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		h := coretest.MustLock(t, t.Context(), coretest.Open(t, s, nil).Mutex("m", dlock.WithLabel("job 17")))
		c := coretest.Open(t, s.Peer(), nil)
		const waiters = 4
		failed := make(chan error, waiters)
		for i := range waiters {
			go func() {
				_, err := c.Mutex("m").LockContext(within(t, 10*time.Second))
				failed <- err
			}()
			if i%2 == 0 {
				synctest.Wait()
			}
		}
		for range waiters {
			err := <-failed
			coretest.WantError(t, err, "lock", "m", context.DeadlineExceeded)
			assert.Equal(t, "job 17", heldBy(t, err))
		}
		require.NoError(t, h.Unlock())
	})
}

// The holder that an error names changes with the holders.
func TestErrorNamesTheHolderOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		first := coretest.MustLock(t, t.Context(), coretest.Open(t, s, &dlock.Options{Label: "first"}).Mutex("m"))
		next := make(chan *dlock.Hold)
		second := coretest.Open(t, s.Peer(), &dlock.Options{Label: "second"})
		go func() { next <- coretest.MustLock(t, t.Context(), second.Mutex("m")) }()
		synctest.Wait()
		failed := make(chan error)
		third := coretest.Open(t, s.Peer(), nil)
		go func() {
			_, err := third.Mutex("m").LockContext(within(t, time.Minute))
			failed <- err
		}()
		time.Sleep(10 * time.Second)
		require.NoError(t, first.Unlock())
		h := <-next
		assert.Equal(t, "second", heldBy(t, <-failed))
		require.NoError(t, h.Unlock())
	})
}

// A nested call without the owner waits for its own process. The error says so, and what was missing.
func TestErrorOfAWaitForThisClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), &dlock.Options{Label: "web-3"})
		m := c.Mutex("m")
		h := coretest.MustLock(t, t.Context(), m)

		_, err := m.LockContext(within(t, time.Second))
		coretest.WantError(t, err, "lock", "m", context.DeadlineExceeded)
		assert.Equal(t, "web-3", heldBy(t, err))
		for _, text := range []string{"this client holds it", "without its owner", "context of Do or Hold.Context", ": held by web-3"} {
			assert.Contains(t, err.Error(), text)
		}
		_, err = m.TryLockContext(t.Context())
		coretest.WantError(t, err, "trylock", "m", dlock.ErrHeld)
		assert.Contains(t, err.Error(), "without its owner")

		_, err = m.LockContext(dlock.WithOwner(within(t, time.Second), dlock.NewOwner()))
		assert.Contains(t, err.Error(), "this client holds it for another owner than the one of this call")
		_, err = m.As(dlock.NewOwner()).TryLockContext(t.Context())
		assert.Contains(t, err.Error(), "this client holds it for another owner than the one of this call")
		require.NoError(t, h.Unlock())
	})
}

// A call that waits behind a hold of its client names it, also if the store is silent.
func TestErrorOfAWaitForThisClientOnASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{Label: "web-3"})
		m := c.Mutex("m")
		h := coretest.MustLock(t, t.Context(), m)
		s.OnAcquire(func(ctx context.Context, _ store.Request) (store.Grant, error) {
			<-ctx.Done()
			return store.Grant{}, ctx.Err()
		})
		time.Sleep(time.Minute)
		_, err := m.LockContext(within(t, time.Second))
		coretest.WantError(t, err, "lock", "m", context.DeadlineExceeded)
		assert.Equal(t, "web-3", heldBy(t, err))
		assert.Contains(t, err.Error(), "held by web-3 for 1m1s")
		require.NoError(t, h.Unlock())
	})
}

// Readers of this client are not in the way of a reader that waits for a writer elsewhere.
func TestErrorOfAReaderBlamesTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, &dlock.Options{Label: "readers", LocalHandoffs: dlock.NoLocalHandoffs})
		other := coretest.Open(t, s.Peer(), &dlock.Options{Label: "writers"})
		reads := coretest.MustRLock(t, t.Context(), c.RWMutex("m"))
		failed := make(chan error, 2)
		go func() {
			_, err := other.RWMutex("m").LockContext(within(t, time.Minute))
			failed <- err
		}()
		synctest.Wait()
		_, err := c.RWMutex("m").RLockContext(within(t, time.Second)) // stands behind the writer
		coretest.WantError(t, err, "rlock", "m", context.DeadlineExceeded)
		assert.NotContains(t, err.Error(), "this client holds it")
		_, err = c.RWMutex("m").LockContext(within(t, time.Second))
		assert.Contains(t, err.Error(), "this client holds it")

		err = <-failed
		assert.Equal(t, "readers", heldBy(t, err))
		require.NoError(t, reads.Unlock())
	})
}

// A refused upgrade names one of the other readers.
func TestErrorOfAnUpgradeNamesAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		other := coretest.MustRLock(t, t.Context(), coretest.Open(t, s, &dlock.Options{Label: "web-3"}).RWMutex("m"))
		rw := coretest.Open(t, s.Peer(), nil).RWMutex("m")
		h := coretest.MustRLock(t, t.Context(), rw)
		_, err := rw.LockContext(h.Context(t.Context()))
		coretest.WantError(t, err, "lock", "m", dlock.ErrUpgrade)
		assert.Equal(t, "web-3", heldBy(t, err))
		require.NoError(t, h.Unlock())
		require.NoError(t, other.Unlock())
	})
}

// silentStore says nothing of holders, as stores may.
type silentStore struct{ store.Store }

func (s silentStore) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, req)
	g.HeldBy = ""
	return g, err
}

func TestErrorWithoutAKnownHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		h := coretest.MustLock(t, t.Context(), coretest.Open(t, s, nil).Mutex("m"))
		c := coretest.Open(t, silentStore{s.Peer()}, nil)
		_, err := c.Mutex("m").TryLockContext(t.Context())
		assert.Empty(t, heldBy(t, err))
		assert.Equal(t, `dlock: trylock "m": lock is held by another owner`, err.Error())
		_, err = c.Mutex("m").LockContext(within(t, time.Second))
		assert.Equal(t, `dlock: lock "m": context deadline exceeded`, err.Error())
		require.NoError(t, h.Unlock())
	})
}

// WithLabel names the holder of one lock, in Inspect and for those that wait.
func TestWithLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, &dlock.Options{Label: "web-3"})
		for label, opts := range map[string][]dlock.LockOption{
			"web-3":                   nil,
			"job 17":                  {dlock.WithLabel("job 17")},
			strings.Repeat("é", 64):   {dlock.WithLabel(strings.Repeat("é", 64))},
			"the last one is counted": {dlock.WithLabel("x"), dlock.WithLabel("the last one is counted")},
		} {
			h := coretest.MustLock(t, t.Context(), c.Mutex("m", opts...))
			state, err := c.Inspect(t.Context(), "m")
			require.NoError(t, err)
			require.Len(t, state.Holders, 1)
			assert.Equal(t, label, state.Holders[0].Label)
			require.NoError(t, h.Unlock())
		}
		for _, bad := range []string{strings.Repeat("x", 129), "\xff"} {
			_, err := c.Mutex("m", dlock.WithLabel(bad)).LockContext(t.Context())
			coretest.WantError(t, err, "lock", "m", dlock.ErrInvalidOption)
			assert.Contains(t, err.Error(), "Label")
			_, err = dlock.New(s, &dlock.Options{Label: bad})
			coretest.WantError(t, err, "new", "", dlock.ErrInvalidOption)
		}
	})
}

// The store shows the label of the holder, also where goroutines of one process take turns.
func TestLabelIsThatOfTheHolderAfterAWaitHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		first := coretest.MustLock(t, t.Context(), c.Mutex("m", dlock.WithLabel("first")))
		next := make(chan *dlock.Hold)
		go func() { next <- coretest.MustLock(t, t.Context(), c.Mutex("m", dlock.WithLabel("second"))) }()
		synctest.Wait()
		require.NoError(t, first.Unlock())
		h := <-next
		assert.Equal(t, "second", coretest.Inspect(t, s, "m").Holders[0].Label)
		require.NoError(t, h.Unlock())
	})
}

// A label with control characters does not break the line that it is printed on.
func TestErrorPrintsAnyLabel(t *testing.T) {
	for label, text := range map[string]string{
		"web-3:812": `dlock: lock "m": x: held by web-3:812`,
		"job é 17":  `dlock: lock "m": x: held by job é 17`,
		"a\nb":      `dlock: lock "m": x: held by "a\nb"`,
		"\xff":      `dlock: lock "m": x: held by "\xff"`,
	} {
		err := &dlock.Error{Op: "lock", Name: "m", HeldBy: label, Err: errors.New("x")}
		assert.Equal(t, text, err.Error())
	}
}
