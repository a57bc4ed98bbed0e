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
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDoHoldsWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		m := coretest.Open(t, s, nil).Mutex("m")
		type key struct{}
		err := m.Do(context.WithValue(t.Context(), key{}, "kept"), func(ctx context.Context) error {
			assert.Equal(t, "kept", ctx.Value(key{}))
			assert.False(t, m.TryLock())
			assert.Len(t, coretest.Inspect(t, s, "m").Holders, 1)
			return nil
		})
		require.NoError(t, err)
		coretest.WantFree(t, s, "m")

		failed := errors.New("failed")
		assert.Equal(t, failed, m.Do(t.Context(), func(context.Context) error { return failed }), "the error is returned unchanged")
	})
}

func TestDoNests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		depth := 0
		var descend func(ctx context.Context) error
		descend = func(ctx context.Context) error {
			if depth++; depth == 100 {
				h := coretest.MustLock(t, ctx, c.Mutex("m"))
				assert.Equal(t, 101, h.Count())
				return h.Unlock()
			}
			return c.Mutex("m").Do(ctx, descend)
		}
		require.NoError(t, c.Mutex("m").Do(t.Context(), descend))
		assert.EqualValues(t, 1, s.Acquires.Load())
		assert.EqualValues(t, 1, s.Releases.Load())
		coretest.WantFree(t, s, "m")
	})
}

func TestDoReportsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := coretest.Open(t, memory.New(), &dlock.Options{TTL: time.Second}).Mutex("m", dlock.WithMaxHold(3*time.Second))
		failed := errors.New("failed")
		for _, own := range []error{nil, failed} {
			start := time.Now()
			err := m.Do(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				assert.ErrorIs(t, context.Cause(ctx), dlock.ErrLost)
				return own
			})
			assert.Equal(t, 3*time.Second, time.Since(start))
			coretest.WantError(t, err, "do", "m", dlock.ErrLost)
			if own != nil {
				assert.ErrorIs(t, err, own)
			}
		}
	})
}

func TestNestedDoReportsALossAtEachLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := coretest.Open(t, memory.New(), &dlock.Options{TTL: time.Second}).Mutex("m", dlock.WithMaxHold(3*time.Second))
		var inner error
		for _, returned := range []bool{false, true} {
			outer := m.Do(t.Context(), func(ctx context.Context) error {
				inner = m.Do(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
				coretest.WantError(t, inner, "do", "m", dlock.ErrLost)
				if returned {
					return inner
				}
				return nil
			})
			coretest.WantError(t, outer, "do", "m", dlock.ErrLost)
			assert.Equal(t, 1, strings.Count(outer.Error(), dlock.ErrLost.Error()), "not once: %v", outer)
		}
		// An inner loss of another lock does not hide the loss of this one.
		other := m.Do(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			return &dlock.Error{Op: "do", Name: "other", Err: dlock.ErrLost}
		})
		assert.Equal(t, 2, strings.Count(other.Error(), dlock.ErrLost.Error()), "%v", other)
		require.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil }))
	})
}

func TestDoReportsAClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), nil)
		err := c.Mutex("m").Do(t.Context(), func(ctx context.Context) error {
			go c.Close()
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), dlock.ErrClosed)
			return nil
		})
		coretest.WantError(t, err, "do", "m", dlock.ErrClosed)
	})
}

// A release without confirmation is no failure of the function, which ran under the lock.
func TestDoDoesNotReturnAnUnconfirmedRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		err := c.Mutex("m").Do(t.Context(), func(context.Context) error { s.GoDown(); return nil })
		assert.NoError(t, err)
		s.Recover()
		time.Sleep(time.Second)
		coretest.WantFree(t, s, "m")
	})
}

func TestDoWithoutTheLockDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		m := coretest.Open(t, s, nil).Mutex("m")
		s.OnAcquire(func(context.Context, store.Request) (store.Grant, error) { return store.Grant{}, store.ErrForeignKey })
		err := m.Do(t.Context(), func(context.Context) error { assert.Fail(t, "called"); return nil })
		coretest.WantError(t, err, "do", "m", dlock.ErrForeignKey)
	})
}

// Do unlocks, and the panic goes on.
func TestFault77PanicInDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		rw := coretest.Open(t, s, nil).RWMutex("m")
		for _, do := range []func(context.Context, func(context.Context) error) error{rw.Do, rw.RDo} {
			assert.PanicsWithValue(t, "kept", func() {
				_ = do(t.Context(), func(ctx context.Context) error {
					_ = do(ctx, func(context.Context) error { panic("kept") })
					return nil
				})
			})
			coretest.WantFree(t, s, "m")
		}
	})
}

func TestGoexitInDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		m := coretest.Open(t, s, nil).Mutex("m")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = m.Do(t.Context(), func(context.Context) error { runtime.Goexit(); return nil })
		}()
		<-done
		coretest.WantFree(t, s, "m")
	})
}
