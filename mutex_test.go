package dlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
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

var (
	_ sync.Locker = (*dlock.Mutex)(nil)
	_ sync.Locker = (*dlock.RWMutex)(nil)
)

func TestMutexExcludesGoroutinesThatShareIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := coretest.Open(t, memory.New(), nil).Mutex("m")
		var wg sync.WaitGroup
		inside, total := 0, 0
		for range 20 {
			wg.Go(func() {
				for range 5 {
					m.Lock()
					inside++
					assert.Equal(t, 1, inside)
					time.Sleep(time.Millisecond)
					inside--
					total++
					m.Unlock()
				}
			})
		}
		wg.Wait()
		assert.Equal(t, 100, total)
	})
}

func TestMutexEachLockIsAnOwnerOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := coretest.Open(t, memory.New(), nil).Mutex("m")
		m.Lock()
		assert.False(t, m.TryLock(), "not even in the same goroutine")
		m.Unlock()
	})
}

func TestMutexUnlockBelongsToTheValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), nil)
		m, twin := c.Mutex("m"), c.Mutex("m")
		assert.Equal(t, "m", m.Name())

		m.Lock()
		coretest.WantPanic(t, twin.Unlock, "unlock", dlock.ErrNotHeld)
		coretest.WantPanic(t, m.As(dlock.NewOwner()).Unlock, "unlock", dlock.ErrNotHeld)
		assert.False(t, twin.TryLock(), "a refused Unlock has released the lock")

		done := make(chan struct{})
		go func() { defer close(done); m.Unlock() }() // any goroutine may unlock
		<-done
		coretest.WantPanic(t, m.Unlock, "unlock", dlock.ErrNotHeld)
		require.True(t, twin.TryLock())
		twin.Unlock()
	})
}

func TestMutexHandlesOfContextFormsAreNotForUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := coretest.Open(t, memory.New(), nil).Mutex("m")
		h := coretest.MustLock(t, t.Context(), m)
		coretest.WantPanic(t, m.Unlock, "unlock", dlock.ErrNotHeld)
		assert.NoError(t, h.Err())
		assert.NoError(t, h.Unlock())
	})
}

func TestMutexTryLockDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, other := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		start := time.Now()

		h := coretest.MustLock(t, t.Context(), other.Mutex("m"))
		assert.False(t, c.Mutex("m").TryLock(), "busy")
		_, err := c.Mutex("m").TryLockContext(t.Context())
		coretest.WantError(t, err, "trylock", "m", dlock.ErrHeld)
		assert.Empty(t, coretest.Inspect(t, s, "m").Queue, "a try takes no place")
		require.NoError(t, h.Unlock())

		m := c.Mutex("m")
		require.True(t, m.TryLock())
		m.Unlock()
		assert.Zero(t, time.Since(start))
	})
}

// A lock that a reader could get, but for which a writer waits, is busy for a try.
func TestMutexTryLockIsFalseWhereOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), nil)
		rw := c.RWMutex("m")
		rw.RLock()
		done := make(chan struct{})
		go func() { rw.Lock(); rw.Unlock(); close(done) }()
		synctest.Wait()
		_, err := c.RWMutex("m").TryRLockContext(t.Context())
		coretest.WantError(t, err, "tryrlock", "m", dlock.ErrHeld)
		rw.RUnlock()
		<-done
	})
}

func TestMutexTryLockIsFalseWhenTheStoreCannotSay(t *testing.T) {
	for name, out := range coretest.Outages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := coretest.NewSpy(memory.New())
				m := coretest.Open(t, s, &dlock.Options{StoreTimeout: 2 * time.Second}).Mutex("m")
				s.Answer(out)
				start := time.Now()
				assert.False(t, m.TryLock())
				assert.LessOrEqual(t, time.Since(start), 2*time.Second)
				_, err := m.TryLockContext(t.Context())
				coretest.WantError(t, err, "trylock", "m", dlock.ErrUnavailable)
				s.Recover()
				require.True(t, m.TryLock(), "the store answers again")
				m.Unlock()
			})
		})
	}
}

// A store that queues a request against its wish does not make a try wait.
func TestMutexTryLockDoesNotWaitForAStoreThatQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
			req.Queue = true
			return s.Store.Acquire(ctx, req)
		})
		m := coretest.Open(t, s, nil).Mutex("m")
		h := coretest.MustLock(t, t.Context(), m)
		start := time.Now()
		_, err := m.TryLockContext(t.Context())
		coretest.WantError(t, err, "trylock", "m", dlock.ErrHeld)
		assert.Zero(t, time.Since(start))
		synctest.Wait()
		state, err := s.Inspect(t.Context(), "m")
		require.NoError(t, err)
		assert.Empty(t, state.Queue)
		require.NoError(t, h.Unlock())
	})
}

func TestMutexTryLockAsksAgainAfterOneFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		m := coretest.Open(t, s, nil).Mutex("m")
		s.OnAcquire(func(context.Context, store.Request) (store.Grant, error) {
			s.Recover()
			return store.Grant{}, coretest.ErrDown
		})
		require.True(t, m.TryLock())
		m.Unlock()
	})
}

func TestMutexPanicsWhereItCanNeverSucceed(t *testing.T) {
	const short = time.Millisecond // under the store's minimum
	cases := map[string]struct {
		cause error
		make  func(*dlock.Client, *coretest.Spy) *dlock.Mutex
	}{
		"closed client": {dlock.ErrClosed, func(c *dlock.Client, _ *coretest.Spy) *dlock.Mutex { c.Close(); return c.Mutex("m") }},
		"closed store":  {dlock.ErrClosed, func(c *dlock.Client, s *coretest.Spy) *dlock.Mutex { s.Store.Close(); return c.Mutex("m") }},
		"empty name":    {dlock.ErrInvalidName, func(c *dlock.Client, _ *coretest.Spy) *dlock.Mutex { return c.Mutex("") }},
		"short TTL":     {dlock.ErrInvalidTTL, func(c *dlock.Client, _ *coretest.Spy) *dlock.Mutex { return c.Mutex("m", dlock.WithTTL(short)) }},
		"bad MaxHold":   {dlock.ErrInvalidTTL, func(c *dlock.Client, _ *coretest.Spy) *dlock.Mutex { return c.Mutex("m", dlock.WithMaxHold(-1)) }},
		"zero owner":    {dlock.ErrInvalidOwner, func(c *dlock.Client, _ *coretest.Spy) *dlock.Mutex { return c.Mutex("m").As(dlock.Owner{}) }},
		"foreign key": {dlock.ErrForeignKey, func(c *dlock.Client, s *coretest.Spy) *dlock.Mutex {
			s.OnAcquire(func(context.Context, store.Request) (store.Grant, error) { return store.Grant{}, store.ErrForeignKey })
			return c.Mutex("m")
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := coretest.NewSpy(memory.New())
				c := coretest.Open(t, s, nil)
				m := tc.make(c, s)
				coretest.WantPanic(t, m.Lock, "lock", tc.cause)
				coretest.WantPanic(t, func() { m.TryLock() }, "trylock", tc.cause)
				_, err := m.LockContext(t.Context())
				coretest.WantError(t, err, "lock", m.Name(), tc.cause)
				_, err = m.TryLockContext(t.Context())
				coretest.WantError(t, err, "trylock", m.Name(), tc.cause)
				coretest.WantPanic(t, m.Unlock, "unlock", dlock.ErrNotHeld)
			})
		})
	}
}

// panicText returns the text of the value that f panics with. It calls f on its own goroutine.
func panicText(t *testing.T, f func()) (text string) {
	t.Helper()
	func() {
		defer func() { text = fmt.Sprint(recover()) }()
		f()
	}()
	return text
}

// Lock and Unlock may go through two As values of one owner, in both modes.
func TestAsValuesOfOneOwnerShareTheirLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, o := coretest.Open(t, s, nil), dlock.NewOwner()
		m, rw := c.Mutex("m"), c.RWMutex("rw")
		m.As(o).Lock()
		m.As(o).Lock()
		require.NotPanics(t, m.As(o).Unlock)
		assert.False(t, c.Mutex("m").TryLock(), "one of two locks is left")
		coretest.WantPanic(t, m.As(dlock.NewOwner()).Unlock, "unlock", dlock.ErrNotHeld)
		coretest.WantPanic(t, m.Unlock, "unlock", dlock.ErrNotHeld)
		require.NotPanics(t, m.As(o).Unlock)
		coretest.WantFree(t, s, "m")
		coretest.WantPanic(t, m.As(o).Unlock, "unlock", dlock.ErrNotHeld)

		rw.As(o).RLock()
		require.NotPanics(t, rw.As(o).RUnlock)
		rw.As(o).Lock()
		require.NotPanics(t, rw.As(o).Unlock)
		coretest.WantFree(t, s, "rw")
		assert.Zero(t, coretest.Gauges(c))
	})
}

// The zero Mutex and the zero RWMutex panic with a sentence that says how to make one.
func TestZeroMutexSaysHowToMakeOne(t *testing.T) {
	nothing := func(context.Context) error { return nil }
	var m dlock.Mutex
	for name, call := range map[string]func(){
		"Lock": m.Lock, "Unlock": m.Unlock, "TryLock": func() { m.TryLock() },
		"LockContext":    func() { _, _ = m.LockContext(t.Context()) },
		"TryLockContext": func() { _, _ = m.TryLockContext(t.Context()) },
		"Do":             func() { _ = m.Do(t.Context(), nothing) },
	} {
		assert.Contains(t, strings.ToLower(panicText(t, call)), "client.mutex", name)
	}
	var rw dlock.RWMutex
	for name, call := range map[string]func(){
		"Lock": rw.Lock, "Unlock": rw.Unlock, "RLock": rw.RLock, "RUnlock": rw.RUnlock, "TryRLock": func() { rw.TryRLock() },
		"RLockContext": func() { _, _ = rw.RLockContext(t.Context()) },
		"RDo":          func() { _ = rw.RDo(t.Context(), nothing) },
	} {
		assert.Contains(t, strings.ToLower(panicText(t, call)), "client.rwmutex", name)
	}
}

// Unlock on another value than the one that locked says that Unlock belongs to that value.
func TestUnlockOnAnotherValueSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), nil)
		m := c.Mutex("m")
		m.Lock()
		text := panicText(t, c.Mutex("m").Unlock)
		assert.Contains(t, text, `unlock "m"`)
		assert.Contains(t, text, "value")
		m.Unlock()
	})
}
