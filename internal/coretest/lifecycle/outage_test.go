package lifecycle

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
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

// The client's own timeouts must not look like the caller's.
func TestContextErrorsAreTheCallersOwn(t *testing.T) {
	for name, out := range map[string]func(context.Context) error{
		"down": coretest.Refuse, "silent": coretest.Hang,
		"gives up": func(context.Context) error { return fmt.Errorf("dial: %w", context.DeadlineExceeded) },
		"cancels":  func(context.Context) error { return fmt.Errorf("dial: %w", context.Canceled) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := coretest.NewSpy(memory.New())
				c := coretest.Open(t, s, &dlock.Options{TTL: time.Minute, StoreTimeout: 10 * time.Millisecond})
				s.Answer(out)
				start := time.Now()
				_, err := c.Mutex("m").LockContext(t.Context())
				took := time.Since(start)
				coretest.WantError(t, err, "lock", "m", dlock.ErrUnavailable)
				assert.NotErrorIs(t, err, context.DeadlineExceeded)
				assert.NotErrorIs(t, err, context.Canceled)
				assert.LessOrEqual(t, took, time.Minute)
				assert.Greater(t, took, 55*time.Second, "nothing was confirmed for a whole TTL")
				if name == "down" {
					assert.ErrorIs(t, err, coretest.ErrDown)
				}

				start = time.Now()
				_, err = c.Mutex("m").TryLockContext(t.Context())
				coretest.WantError(t, err, "trylock", "m", dlock.ErrUnavailable)
				assert.NotErrorIs(t, err, context.DeadlineExceeded)
				assert.NotErrorIs(t, err, context.Canceled)
				assert.LessOrEqual(t, time.Since(start), 10*time.Millisecond)
				s.Recover()
			})
		})
	}
}

// A wait without a deadline also ends on a store whose calls never bring an answer.
func TestContextlessWaitEndsOnAStoreThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{TTL: time.Minute, StoreTimeout: 2 * time.Second})
		s.OnAcquire(func(ctx context.Context, _ store.Request) (store.Grant, error) {
			<-ctx.Done()
			return store.Grant{}, coretest.ErrDown
		})
		start := time.Now()
		_, err := c.Mutex("m").LockContext(t.Context())
		coretest.WantError(t, err, "lock", "m", dlock.ErrUnavailable)
		assert.LessOrEqual(t, time.Since(start), time.Minute)
		assert.Greater(t, time.Since(start), time.Minute-2*time.Second, "it gave up while there was time for another try")
		start = time.Now()
		_, err = c.Mutex("m").TryLockContext(t.Context())
		coretest.WantError(t, err, "trylock", "m", dlock.ErrUnavailable)
		assert.Equal(t, 2*time.Second, time.Since(start))
		s.Recover()
		time.Sleep(time.Hour)
	})
}

// A try that repeats its request is bounded by StoreTimeout as a whole, also if its last request
// is never answered.
func TestTryIsBoundedAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		m := coretest.Open(t, s, &dlock.Options{StoreTimeout: 5 * time.Second}).Mutex("m")
		s.OnAcquire(func(ctx context.Context, _ store.Request) (store.Grant, error) {
			if s.Acquires.Load() == 1 {
				time.Sleep(4 * time.Second)
				return store.Grant{}, coretest.ErrDown
			}
			return store.Grant{}, coretest.Hang(ctx)
		})
		start := time.Now()
		_, err := m.TryLockContext(t.Context())
		coretest.WantError(t, err, "trylock", "m", dlock.ErrUnavailable)
		assert.Equal(t, 5*time.Second, time.Since(start))
		s.Recover()
	})
}

// As long as the store answers, the wait goes on, however long the lock is held.
func TestContextlessWaitOutlastsManyTTLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		h := coretest.MustLock(t, t.Context(), coretest.Open(t, s, nil).Mutex("m"))
		waited := make(chan struct{})
		m := coretest.Open(t, s.Peer(), &dlock.Options{TTL: time.Second}).Mutex("m")
		go func() {
			defer close(waited)
			second, err := m.LockContext(t.Context())
			if assert.NoError(t, err) {
				assert.NoError(t, second.Unlock())
			}
		}()
		time.Sleep(10 * time.Minute)
		require.False(t, coretest.Closed(waited))
		require.NoError(t, h.Unlock())
		<-waited
	})
}

// A waiter survives an outage that is shorter than a TTL, and keeps its place.
func TestContextlessWaitOutlastsAShortOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		h := coretest.MustLock(t, t.Context(), coretest.Open(t, s.Store.(*memory.Store).Peer(), nil).Mutex("m"))
		m := coretest.Open(t, s, &dlock.Options{TTL: time.Minute, WaitTTL: time.Minute}).Mutex("m")
		waited := make(chan struct{})
		go func() { defer close(waited); m.Lock() }()
		synctest.Wait()
		place := coretest.Inspect(t, s, "m").Queue[0].ID
		s.GoDown()
		time.Sleep(50 * time.Second)
		s.Recover()
		time.Sleep(10 * time.Second)
		assert.Equal(t, place, coretest.Inspect(t, s, "m").Queue[0].ID)
		require.NoError(t, h.Unlock())
		<-waited
		m.Unlock()
	})
}

func TestMutexLockGoesOnThroughOutages(t *testing.T) {
	for name, out := range coretest.Outages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := coretest.NewSpy(memory.New())
				var log bytes.Buffer
				m := coretest.Open(t, s, &dlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}).Mutex("m")
				s.Answer(out)
				locked := make(chan struct{})
				go func() { m.Lock(); close(locked) }()

				const outage = 3 * time.Minute // six TTLs
				time.Sleep(outage)
				require.False(t, coretest.Closed(locked))
				asked := s.Acquires.Load()
				assert.Greater(t, asked, int64(30), "Lock has stopped trying")
				assert.Less(t, asked, int64(4*outage/time.Second), "the pauses do not grow")

				s.Recover()
				start := time.Now()
				<-locked
				assert.LessOrEqual(t, time.Since(start), 5*time.Second)
				m.Unlock()
				synctest.Wait() // other goroutines log, too
				assert.Contains(t, log.String(), "Lock goes on trying")
				coretest.WantFree(t, s, "m")
			})
		})
	}
}

// Lock does not panic for a refusal that may pass.
func TestMutexLockGoesOnAfterPassingRefusals(t *testing.T) {
	for _, refusal := range []error{store.ErrRefused, store.ErrLost, store.ErrHeld} {
		t.Run(refusal.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := coretest.NewSpy(memory.New())
				m := coretest.Open(t, s, nil).Mutex("m")
				s.OnAcquire(func(context.Context, store.Request) (store.Grant, error) { return store.Grant{}, refusal })
				locked := make(chan struct{})
				go func() { m.Lock(); close(locked) }()
				time.Sleep(time.Minute)
				require.False(t, coretest.Closed(locked))
				assert.Less(t, s.Acquires.Load(), int64(200), "the pauses do not grow")
				s.Recover()
				<-locked
				m.Unlock()
			})
		})
	}
}

// A Close ends Lock, also when the store never answers.
func TestFault107LockPanicsWhenTheClientIsClosed(t *testing.T) {
	for name, out := range coretest.Outages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := coretest.NewSpy(memory.New())
				c := coretest.Open(t, s, nil)
				s.Answer(out)
				m, done := c.Mutex("m"), make(chan struct{})
				go func() {
					defer close(done)
					coretest.WantPanic(t, m.Lock, "lock", dlock.ErrClosed)
				}()
				time.Sleep(2 * time.Minute)
				s.Recover()
				_ = c.Close()
				start := time.Now()
				<-done
				assert.Zero(t, time.Since(start))
			})
		})
	}
}

// Without a confirmation Unlock returns after StoreTimeout, and the release goes on until it is
// confirmed.
func TestHoldUnlockOnASilentStore(t *testing.T) {
	for name, out := range coretest.Outages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := coretest.NewSpy(memory.New())
				c := coretest.Open(t, s, &dlock.Options{TTL: time.Hour, StoreTimeout: 2 * time.Second})
				h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
				s.Answer(out)
				start := time.Now()
				coretest.WantError(t, h.Unlock(), "unlock", "m", dlock.ErrUnavailable)
				took := time.Since(start)
				assert.LessOrEqual(t, took, 2*time.Second)
				assert.Greater(t, took, 1500*time.Millisecond, "Unlock did not try again until its time was over")
				assert.Equal(t, dlock.ErrNotHeld, h.Err(), "the hold ends at once in any case")

				time.Sleep(30 * time.Minute)
				assert.Len(t, coretest.Inspect(t, s, "m").Holders, 1)
				s.Recover()
				time.Sleep(5 * time.Second)
				coretest.WantFree(t, s, "m")
			})
		})
	}
}

// A release whose reply was lost is repeated. Then the hold is not there, which means success.
func TestHoldUnlockRepeatedAfterALostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		var lost coretest.Losses
		h := coretest.MustLock(t, t.Context(), coretest.Open(t, s, &dlock.Options{OnLost: lost.Add}).Mutex("m"))
		s.OnRelease(func(ctx context.Context, ref store.Ref) error {
			s.Recover()
			return append([]error{coretest.ErrDown}, s.Store.Release(ctx, ref))[0]
		})
		require.NoError(t, h.Unlock())
		assert.EqualValues(t, 2, s.Releases.Load())
		synctest.Wait()
		assert.Empty(t, lost.All())
	})
}
