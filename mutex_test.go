package dlock_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
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
		m := open(t, memory.New(), nil).Mutex("m")
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
		m := open(t, memory.New(), nil).Mutex("m")
		m.Lock()
		assert.False(t, m.TryLock(), "not even in the same goroutine")
		m.Unlock()
	})
}

func TestMutexUnlockBelongsToTheValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, memory.New(), nil)
		m, twin := c.Mutex("m"), c.Mutex("m")
		assert.Equal(t, "m", m.Name())

		m.Lock()
		wantPanic(t, twin.Unlock, "unlock", dlock.ErrNotHeld)
		wantPanic(t, m.As(dlock.NewOwner()).Unlock, "unlock", dlock.ErrNotHeld)
		assert.False(t, twin.TryLock(), "the refused Unlocks took nothing away")

		done := make(chan struct{})
		go func() { defer close(done); m.Unlock() }() // not by the goroutine that locked
		<-done
		wantPanic(t, m.Unlock, "unlock", dlock.ErrNotHeld)
		require.True(t, twin.TryLock())
		twin.Unlock()
	})
}

func TestMutexHandlesOfContextFormsAreNotForUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, memory.New(), nil).Mutex("m")
		h := mustLock(t, t.Context(), m)
		wantPanic(t, m.Unlock, "unlock", dlock.ErrNotHeld)
		assert.NoError(t, h.Err())
		assert.NoError(t, h.Unlock())
	})
}

func TestMutexTryLockDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, other := open(t, s, nil), open(t, s.Peer(), nil)
		start := time.Now()

		h := mustLock(t, t.Context(), other.Mutex("m"))
		assert.False(t, c.Mutex("m").TryLock(), "busy")
		_, err := c.Mutex("m").TryLockContext(t.Context())
		wantError(t, err, "trylock", "m", dlock.ErrHeld)
		assert.Empty(t, inspect(t, s, "m").Queue, "a try takes no place")
		require.NoError(t, h.Unlock())

		m := c.Mutex("m")
		require.True(t, m.TryLock())
		m.Unlock()
		assert.Zero(t, time.Since(start))
	})
}

// A lock that is free for a reader, but for which a writer waits, is not for a try.
func TestMutexTryLockIsFalseWhereOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, memory.New(), nil)
		rw := c.RWMutex("m")
		rw.RLock()
		done := make(chan struct{})
		go func() { rw.Lock(); rw.Unlock(); close(done) }()
		synctest.Wait()
		_, err := c.RWMutex("m").TryRLockContext(t.Context())
		wantError(t, err, "tryrlock", "m", dlock.ErrHeld)
		rw.RUnlock()
		<-done
	})
}

func TestMutexTryLockIsFalseWhenTheStoreCannotSay(t *testing.T) {
	for name, out := range outages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpy(memory.New())
				m := open(t, s, &dlock.Options{StoreTimeout: 2 * time.Second}).Mutex("m")
				s.answer(out)
				start := time.Now()
				assert.False(t, m.TryLock())
				assert.LessOrEqual(t, time.Since(start), 2*time.Second)
				_, err := m.TryLockContext(t.Context())
				wantError(t, err, "trylock", "m", dlock.ErrUnavailable)
				s.recover()
				require.True(t, m.TryLock(), "works again as soon as the store does")
				m.Unlock()
			})
		})
	}
}

// A store that queues who did not ask for it keeps no try waiting.
func TestMutexTryLockDoesNotWaitForAStoreThatQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		s.onAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
			req.Queue = true
			return s.Store.Acquire(ctx, req)
		})
		m := open(t, s, nil).Mutex("m")
		h := mustLock(t, t.Context(), m)
		start := time.Now()
		_, err := m.TryLockContext(t.Context())
		wantError(t, err, "trylock", "m", dlock.ErrHeld)
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
		s := newSpy(memory.New())
		m := open(t, s, nil).Mutex("m")
		s.onAcquire(func(context.Context, store.Request) (store.Grant, error) {
			s.recover()
			return store.Grant{}, errDown
		})
		require.True(t, m.TryLock())
		m.Unlock()
	})
}

var outages = map[string]func(context.Context) error{"down": refuseConnection, "mute": hang}

func TestMutexLockGoesOnThroughOutages(t *testing.T) {
	for name, out := range outages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpy(memory.New())
				var log bytes.Buffer
				m := open(t, s, &dlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}).Mutex("m")
				s.answer(out)
				locked := make(chan struct{})
				go func() { m.Lock(); close(locked) }()

				const outage = 3 * time.Minute // six TTLs
				time.Sleep(outage)
				require.False(t, closed(locked))
				asked := s.acquires.Load()
				assert.Greater(t, asked, int64(30), "goes on")
				assert.Less(t, asked, int64(4*outage/time.Second), "but with growing pauses")

				s.recover()
				start := time.Now()
				<-locked
				assert.LessOrEqual(t, time.Since(start), 5*time.Second)
				m.Unlock()
				assert.Contains(t, log.String(), "Lock goes on trying")
				wantFree(t, s, "m")
			})
		})
	}
}

// What may pass by itself is no reason for Lock to panic.
func TestMutexLockGoesOnAfterPassingRefusals(t *testing.T) {
	for _, refusal := range []error{store.ErrRefused, store.ErrLost, store.ErrHeld} {
		t.Run(refusal.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpy(memory.New())
				m := open(t, s, nil).Mutex("m")
				s.onAcquire(func(context.Context, store.Request) (store.Grant, error) { return store.Grant{}, refusal })
				locked := make(chan struct{})
				go func() { m.Lock(); close(locked) }()
				time.Sleep(time.Minute)
				require.False(t, closed(locked))
				assert.Less(t, s.acquires.Load(), int64(200), "with growing pauses")
				s.recover()
				<-locked
				m.Unlock()
			})
		})
	}
}

func TestMutexPanicsWhereItCanNeverSucceed(t *testing.T) {
	const short = time.Millisecond // under the store's minimum
	cases := map[string]struct {
		cause error
		make  func(*dlock.Client, *spy) *dlock.Mutex
	}{
		"closed client": {dlock.ErrClosed, func(c *dlock.Client, _ *spy) *dlock.Mutex { c.Close(); return c.Mutex("m") }},
		"closed store":  {dlock.ErrClosed, func(c *dlock.Client, s *spy) *dlock.Mutex { s.Store.Close(); return c.Mutex("m") }},
		"empty name":    {dlock.ErrInvalidName, func(c *dlock.Client, _ *spy) *dlock.Mutex { return c.Mutex("") }},
		"short TTL":     {dlock.ErrInvalidTTL, func(c *dlock.Client, _ *spy) *dlock.Mutex { return c.Mutex("m", dlock.WithTTL(short)) }},
		"bad MaxHold":   {dlock.ErrInvalidTTL, func(c *dlock.Client, _ *spy) *dlock.Mutex { return c.Mutex("m", dlock.WithMaxHold(-1)) }},
		"zero owner":    {dlock.ErrInvalidOwner, func(c *dlock.Client, _ *spy) *dlock.Mutex { return c.Mutex("m").As(dlock.Owner{}) }},
		"foreign key": {dlock.ErrForeignKey, func(c *dlock.Client, s *spy) *dlock.Mutex {
			s.onAcquire(func(context.Context, store.Request) (store.Grant, error) { return store.Grant{}, store.ErrForeignKey })
			return c.Mutex("m")
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpy(memory.New())
				c := open(t, s, nil)
				m := tc.make(c, s)
				wantPanic(t, m.Lock, "lock", tc.cause)
				wantPanic(t, func() { m.TryLock() }, "trylock", tc.cause)
				_, err := m.LockContext(t.Context())
				wantError(t, err, "lock", m.Name(), tc.cause)
				_, err = m.TryLockContext(t.Context())
				wantError(t, err, "trylock", m.Name(), tc.cause)
				wantPanic(t, m.Unlock, "unlock", dlock.ErrNotHeld)
			})
		})
	}
}

// Waiting for a store that never answers must not hide a Close.
func TestMutexLockPanicsWhenTheClientIsClosedMeanwhile(t *testing.T) {
	for name, out := range outages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpy(memory.New())
				c := open(t, s, nil)
				s.answer(out)
				m, done := c.Mutex("m"), make(chan struct{})
				go func() {
					defer close(done)
					wantPanic(t, m.Lock, "lock", dlock.ErrClosed)
				}()
				time.Sleep(2 * time.Minute)
				s.recover()
				_ = c.Close()
				start := time.Now()
				<-done
				assert.Zero(t, time.Since(start))
			})
		})
	}
}
