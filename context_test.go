package dlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestContextBoundsOnlyTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := coretest.Open(t, memory.New(), nil).Mutex("m")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		h := coretest.MustLock(t, ctx, m)
		time.Sleep(time.Hour)
		cancel()
		assert.NoError(t, h.Err())
		assert.NoError(t, h.Unlock())
	})
}

// A hold is lost while its holder waits for another lock. The wait ends for that reason, and the
// error says so.
func TestContextCauseIsPartOfTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, &dlock.Options{TTL: time.Second})
		busy := coretest.MustLock(t, t.Context(), coretest.Open(t, s.Peer(), nil).Mutex("b"))
		h := coretest.MustLock(t, t.Context(), c.Mutex("a", dlock.WithMaxHold(3*time.Second)))

		start := time.Now()
		_, err := c.Mutex("b").LockContext(h.Context(t.Context()))
		assert.Equal(t, 3*time.Second, time.Since(start))
		coretest.WantError(t, err, "lock", "b", context.Canceled)
		assert.ErrorIs(t, err, dlock.ErrLost)

		errLunch := errors.New("lunch")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errLunch)
		defer cancel()
		_, err = c.Mutex("b").LockContext(ctx)
		coretest.WantError(t, err, "lock", "b", context.DeadlineExceeded)
		assert.ErrorIs(t, err, errLunch)

		assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		assert.NoError(t, busy.Unlock())
	})
}

// several is an error that cannot be compared with ==.
type several []error

func (several) Error() string { return "several" }

// ends is a context whose error is not one of package context.
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
		m := coretest.Open(t, memory.New(), nil).Mutex("m")
		h := coretest.MustLock(t, t.Context(), m)
		ctx := ends{context.WithoutCancel(t.Context()), make(chan struct{})}
		time.AfterFunc(time.Second, func() { close(ctx.done) })
		_, err := m.LockContext(ctx)
		var own several
		require.ErrorAs(t, err, &own)
		require.NoError(t, h.Unlock())
		require.NoError(t, coretest.MustLock(t, t.Context(), m).Unlock())
	})
}

func TestContextThatHasEndedMakesNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		rw := coretest.Open(t, s, nil).RWMutex("m")
		ctx, cancel := context.WithCancel(dlock.WithOwner(t.Context(), dlock.NewOwner()))
		cancel()
		refused := func() {
			for op, f := range map[string]func(context.Context) (*dlock.Hold, error){
				"lock": rw.LockContext, "trylock": rw.TryLockContext, "rlock": rw.RLockContext, "tryrlock": rw.TryRLockContext,
			} {
				h, err := f(ctx)
				assert.Nil(t, h)
				coretest.WantError(t, err, op, "m", context.Canceled)
			}
			never := func(context.Context) error { assert.Fail(t, "called"); return nil }
			coretest.WantError(t, rw.Do(ctx, never), "do", "m", context.Canceled)
			coretest.WantError(t, rw.RDo(ctx, never), "rdo", "m", context.Canceled)
		}
		refused()
		assert.Zero(t, s.Calls())

		h := coretest.MustLock(t, context.WithoutCancel(ctx), rw)
		before := s.Calls()
		refused() // re-entry too
		synctest.Wait()
		assert.Equal(t, before, s.Calls())
		assert.Equal(t, 1, h.Count())
		assert.NoError(t, h.Unlock())
	})
}

// Readers of one client share what the store has granted, but none whose context has ended.
func TestContextThatHasEndedJoinsNoReader(t *testing.T) {
	rw := coretest.Open(t, memory.New(), nil).RWMutex("m")
	h := coretest.MustRLock(t, t.Context(), rw)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for op, f := range map[string]func(context.Context) (*dlock.Hold, error){"rlock": rw.RLockContext, "tryrlock": rw.TryRLockContext} {
		none, err := f(ctx)
		assert.Nil(t, none)
		coretest.WantError(t, err, op, "m", context.Canceled)
	}
	assert.NoError(t, h.Unlock())
}

// A nil context panics, as in the standard library. A caller that recovers can go on.
func TestNilContextLocksNothing(t *testing.T) {
	m := coretest.Open(t, memory.New(), nil).Mutex("m")
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
				t.Fatal("the next lock of the name waits")
			}
		})
	}
}
