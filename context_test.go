package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestContextBoundsOnlyTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, memory.New(), nil).Mutex("m")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		h := mustLock(t, ctx, m)
		time.Sleep(time.Hour)
		cancel()
		assert.NoError(t, h.Err())
		assert.NoError(t, h.Unlock())
	})
}

// Where a call may stand when its context ends, and how the store is then.
func TestContextEndsTheWaitAtOnce(t *testing.T) {
	for _, stage := range []string{"first call", "store's queue", "process's line"} {
		for during, change := range map[string]func(*spy){
			"up": func(*spy) {}, "down": (*spy).goDown, "mute": (*spy).goMute,
		} {
			t.Run(stage+"/"+during, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					memory := memory.New()
					holder := open(t, memory.Peer(), nil)
					s := newSpy(memory)
					c := open(t, s, &dlock.Options{TTL: time.Minute})
					h := mustLock(t, t.Context(), holder.Mutex("m"))
					if stage == "first call" {
						change(s)
					}
					first := make(chan struct{})
					if stage == "process's line" {
						m := c.Mutex("m")
						go func() { defer close(first); m.Lock(); m.Unlock() }()
						synctest.Wait()
					}
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan error)
					go func() {
						_, err := c.Mutex("m").LockContext(ctx)
						done <- err
					}()
					synctest.Wait()
					change(s)
					time.Sleep(7 * time.Second)

					start := time.Now()
					cancel()
					err := <-done
					assert.Zero(t, time.Since(start))
					wantError(t, err, "lock", "m", context.Canceled)
					s.recover()
					require.NoError(t, h.Unlock())
					if stage == "process's line" {
						<-first
					}
				})
			})
		}
	}
}

func TestContextDeadlineEndsTheWaitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		m := open(t, s, nil).Mutex("m")
		s.goMute()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := m.LockContext(ctx)
		assert.Equal(t, time.Second, time.Since(start))
		wantError(t, err, "lock", "m", context.DeadlineExceeded)
		s.recover()
	})
}

// A hold that is lost while its holder waits for another lock is the reason
// for which that wait ends, and the error says so.
func TestContextCauseIsPartOfTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := open(t, s, &dlock.Options{TTL: time.Second})
		busy := mustLock(t, t.Context(), open(t, s.Peer(), nil).Mutex("b"))
		h := mustLock(t, t.Context(), c.Mutex("a", dlock.WithMaxHold(3*time.Second)))

		start := time.Now()
		_, err := c.Mutex("b").LockContext(h.Context(t.Context()))
		assert.Equal(t, 3*time.Second, time.Since(start))
		wantError(t, err, "lock", "b", context.Canceled)
		assert.ErrorIs(t, err, dlock.ErrLost)

		errLunch := errors.New("lunch")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errLunch)
		defer cancel()
		_, err = c.Mutex("b").LockContext(ctx)
		wantError(t, err, "lock", "b", context.DeadlineExceeded)
		assert.ErrorIs(t, err, errLunch)

		assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		assert.NoError(t, busy.Unlock())
	})
}

// several is an error that cannot be compared with ==.
type several []error

func (several) Error() string { return "several" }

// ends is a context of somebody's own make.
type ends struct {
	context.Context
	done chan struct{}
}

func (c ends) Done() <-chan struct{} { return c.done }

func (c ends) Err() error {
	select {
	case <-c.done:
		return several{}
	default:
		return nil
	}
}

func TestContextWithAnErrorOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, memory.New(), nil).Mutex("m")
		h := mustLock(t, t.Context(), m)
		ctx := ends{context.WithoutCancel(t.Context()), make(chan struct{})}
		time.AfterFunc(time.Second, func() { close(ctx.done) })
		_, err := m.LockContext(ctx)
		var own several
		require.ErrorAs(t, err, &own)
		require.NoError(t, h.Unlock())
		require.NoError(t, mustLock(t, t.Context(), m).Unlock())
	})
}

func TestContextThatHasEndedMakesNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		rw := open(t, s, nil).RWMutex("m")
		ctx, cancel := context.WithCancel(dlock.WithOwner(t.Context(), dlock.NewOwner()))
		cancel()
		refused := func() {
			for op, f := range map[string]func(context.Context) (*dlock.Hold, error){
				"lock": rw.LockContext, "trylock": rw.TryLockContext, "rlock": rw.RLockContext, "tryrlock": rw.TryRLockContext,
			} {
				h, err := f(ctx)
				assert.Nil(t, h)
				wantError(t, err, op, "m", context.Canceled)
			}
			never := func(context.Context) error { assert.Fail(t, "called"); return nil }
			wantError(t, rw.Do(ctx, never), "do", "m", context.Canceled)
			wantError(t, rw.RDo(ctx, never), "rdo", "m", context.Canceled)
		}
		refused()
		assert.Zero(t, s.calls())

		h := mustLock(t, context.WithoutCancel(ctx), rw)
		before := s.calls()
		refused() // re-entry as well
		synctest.Wait()
		assert.Equal(t, before, s.calls())
		assert.Equal(t, 1, h.Count())
		assert.NoError(t, h.Unlock())
	})
}

// The client's own timeouts are not to look like the caller's.
func TestContextErrorsAreTheCallersOwn(t *testing.T) {
	for name, out := range map[string]func(context.Context) error{
		"down": refuseConnection, "mute": hang,
		"gives up": func(context.Context) error { return fmt.Errorf("dial: %w", context.DeadlineExceeded) },
		"cancels":  func(context.Context) error { return fmt.Errorf("dial: %w", context.Canceled) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpy(memory.New())
				c := open(t, s, &dlock.Options{TTL: time.Minute, StoreTimeout: 10 * time.Millisecond})
				s.answer(out)
				start := time.Now()
				_, err := c.Mutex("m").LockContext(t.Context())
				took := time.Since(start)
				wantError(t, err, "lock", "m", dlock.ErrUnavailable)
				assert.NotErrorIs(t, err, context.DeadlineExceeded)
				assert.NotErrorIs(t, err, context.Canceled)
				assert.LessOrEqual(t, took, time.Minute)
				assert.Greater(t, took, 55*time.Second, "nothing was confirmed for a whole TTL")
				if name == "down" {
					assert.ErrorIs(t, err, errDown)
				}

				start = time.Now()
				_, err = c.Mutex("m").TryLockContext(t.Context())
				wantError(t, err, "trylock", "m", dlock.ErrUnavailable)
				assert.NotErrorIs(t, err, context.DeadlineExceeded)
				assert.NotErrorIs(t, err, context.Canceled)
				assert.LessOrEqual(t, time.Since(start), 10*time.Millisecond)
				s.recover()
			})
		})
	}
}

// A store whose calls return neither an answer nor in time costs no more.
func TestContextlessWaitEndsOnAStoreThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, &dlock.Options{TTL: time.Minute, StoreTimeout: 2 * time.Second})
		s.onAcquire(func(context.Context, store.Request) (store.Grant, error) {
			time.Sleep(time.Hour)
			return store.Grant{}, errDown
		})
		start := time.Now()
		_, err := c.Mutex("m").LockContext(t.Context())
		wantError(t, err, "lock", "m", dlock.ErrUnavailable)
		assert.Equal(t, time.Minute, time.Since(start))
		start = time.Now()
		_, err = c.Mutex("m").TryLockContext(t.Context())
		wantError(t, err, "trylock", "m", dlock.ErrUnavailable)
		assert.Equal(t, 2*time.Second, time.Since(start))
		time.Sleep(time.Hour)
	})
}

// As long as the store answers, however slowly the lock moves on, the wait goes on.
func TestContextlessWaitOutlastsManyTTLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		h := mustLock(t, t.Context(), open(t, s, nil).Mutex("m"))
		waited := make(chan struct{})
		m := open(t, s.Peer(), &dlock.Options{TTL: time.Second}).Mutex("m")
		go func() {
			defer close(waited)
			second, err := m.LockContext(t.Context())
			if assert.NoError(t, err) {
				assert.NoError(t, second.Unlock())
			}
		}()
		time.Sleep(10 * time.Minute)
		require.False(t, closed(waited))
		require.NoError(t, h.Unlock())
		<-waited
	})
}

// A waiter outlives an outage that is shorter than a TTL, and keeps its place.
func TestContextlessWaitOutlastsAShortOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		h := mustLock(t, t.Context(), open(t, s.Store.(*memory.Store).Peer(), nil).Mutex("m"))
		m := open(t, s, &dlock.Options{TTL: time.Minute, WaitTTL: time.Minute}).Mutex("m")
		waited := make(chan struct{})
		go func() { defer close(waited); m.Lock() }()
		synctest.Wait()
		place := inspect(t, s, "m").Queue[0].ID
		s.goDown()
		time.Sleep(50 * time.Second)
		s.recover()
		time.Sleep(10 * time.Second)
		assert.Equal(t, place, inspect(t, s, "m").Queue[0].ID)
		require.NoError(t, h.Unlock())
		<-waited
		m.Unlock()
	})
}

// A context that is none panics, as it does everywhere. Who recovers can go on.
func TestNilContextLocksNothing(t *testing.T) {
	m := open(t, memory.New(), nil).Mutex("m")
	var none context.Context
	for name, call := range map[string]func(*dlock.Mutex) (*dlock.Hold, error){
		"lock": func(m *dlock.Mutex) (*dlock.Hold, error) { return m.LockContext(none) },
		"try":  func(m *dlock.Mutex) (*dlock.Hold, error) { return m.TryLockContext(none) },
	} {
		t.Run(name, func(t *testing.T) {
			owned := m.As(dlock.NewOwner())
			assert.Panics(t, func() { call(owned) })
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- m.Do(ctx, func(context.Context) error { return nil }) }()
			select {
			case err := <-done:
				assert.NoError(t, err)
			case <-time.After(10 * time.Second):
				t.Fatal("the name hangs")
			}
		})
	}
}
