package dlock_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDoHoldsWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		m := open(t, s, nil).Mutex("m")
		type key struct{}
		err := m.Do(context.WithValue(t.Context(), key{}, "kept"), func(ctx context.Context) error {
			assert.Equal(t, "kept", ctx.Value(key{}))
			assert.False(t, m.TryLock())
			assert.Len(t, inspect(t, s, "m").Holders, 1)
			return nil
		})
		require.NoError(t, err)
		wantFree(t, s, "m")

		failed := errors.New("failed")
		assert.Equal(t, failed, m.Do(t.Context(), func(context.Context) error { return failed }), "as it is")
	})
}

func TestDoNests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		depth := 0
		var descend func(ctx context.Context) error
		descend = func(ctx context.Context) error {
			if depth++; depth == 100 {
				h := mustLock(t, ctx, c.Mutex("m"))
				assert.Equal(t, 101, h.Count())
				return h.Unlock()
			}
			return c.Mutex("m").Do(ctx, descend)
		}
		require.NoError(t, c.Mutex("m").Do(t.Context(), descend))
		assert.EqualValues(t, 1, s.acquires.Load())
		assert.EqualValues(t, 1, s.releases.Load())
		wantFree(t, s, "m")
	})
}

func TestDoIsToldOfALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, memory.New(), &dlock.Options{TTL: time.Second}).Mutex("m", dlock.WithMaxHold(3*time.Second))
		failed := errors.New("failed")
		for _, own := range []error{nil, failed} {
			start := time.Now()
			err := m.Do(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				assert.Equal(t, dlock.ErrLost, context.Cause(ctx))
				return own
			})
			assert.Equal(t, 3*time.Second, time.Since(start))
			wantError(t, err, "do", "m", dlock.ErrLost)
			if own != nil {
				assert.ErrorIs(t, err, own)
			}
		}
	})
}

// All layers are told, each by its own Do.
func TestDoNestedIsToldOfALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, memory.New(), &dlock.Options{TTL: time.Second}).Mutex("m", dlock.WithMaxHold(3*time.Second))
		var inner error
		for _, handsOn := range []bool{false, true} {
			outer := m.Do(t.Context(), func(ctx context.Context) error {
				inner = m.Do(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
				wantError(t, inner, "do", "m", dlock.ErrLost)
				if handsOn {
					return inner
				}
				return nil
			})
			wantError(t, outer, "do", "m", dlock.ErrLost)
			assert.Equal(t, 1, strings.Count(outer.Error(), dlock.ErrLost.Error()), "told once: %v", outer)
		}
		// An inner loss of another lock does not hide one's own.
		other := m.Do(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			return &dlock.Error{Op: "do", Name: "other", Err: dlock.ErrLost}
		})
		assert.Equal(t, 2, strings.Count(other.Error(), dlock.ErrLost.Error()), "%v", other)
		require.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil }))
	})
}

func TestDoIsToldOfAClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, memory.New(), nil)
		err := c.Mutex("m").Do(t.Context(), func(ctx context.Context) error {
			go c.Close()
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), dlock.ErrClosed)
			return nil
		})
		wantError(t, err, "do", "m", dlock.ErrClosed)
	})
}

// A release without confirmation is no failure of the work that was done.
func TestDoDoesNotReturnAnUnconfirmedRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		err := c.Mutex("m").Do(t.Context(), func(context.Context) error { s.goDown(); return nil })
		assert.NoError(t, err)
		s.recover()
		time.Sleep(time.Second)
		wantFree(t, s, "m")
	})
}

func TestDoWithoutTheLockDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		m := open(t, s, nil).Mutex("m")
		s.onAcquire(func(context.Context, store.Request) (store.Grant, error) { return store.Grant{}, store.ErrForeignKey })
		err := m.Do(t.Context(), func(context.Context) error { assert.Fail(t, "called"); return nil })
		wantError(t, err, "do", "m", dlock.ErrForeignKey)
	})
}

// Fault 77: the lock is given back, and the panic goes on.
func TestFault77PanicInDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		rw := open(t, s, nil).RWMutex("m")
		for _, do := range []func(context.Context, func(context.Context) error) error{rw.Do, rw.RDo} {
			assert.PanicsWithValue(t, "kept", func() {
				_ = do(t.Context(), func(ctx context.Context) error {
					_ = do(ctx, func(context.Context) error { panic("kept") })
					return nil
				})
			})
			wantFree(t, s, "m")
		}
	})
}

func TestGoexitInDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		m := open(t, s, nil).Mutex("m")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = m.Do(t.Context(), func(context.Context) error { runtime.Goexit(); return nil })
		}()
		<-done
		wantFree(t, s, "m")
	})
}
