package core_test

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/core"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// clientOf returns the client of this package inside the public one.
func clientOf(c *dlock.Client) *core.Client {
	return *(**core.Client)(unsafe.Pointer(reflect.ValueOf(c).Elem().FieldByName("core").UnsafeAddr()))
}

// handleOf returns the handle of this package inside a public hold.
func handleOf(h *dlock.Hold) *core.Handle {
	return (*core.Handle)(unsafe.Pointer(reflect.ValueOf(h).Elem().FieldByName("core").UnsafeAddr()))
}

// Fault 91: a count that has reached 2^31-1 is full. It does not wrap, and the
// holds are still there.
func TestFault91HoldCountIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := dlock.New(memory.New(), nil)
		require.NoError(t, err)
		rw := c.RWMutex("m").As(dlock.NewOwner())
		h, err := rw.LockContext(t.Context())
		require.NoError(t, err)
		const most = 1<<31 - 1
		core.PretendHandles(handleOf(h), most-2)
		last, err := rw.LockContext(t.Context())
		require.NoError(t, err)
		assert.Equal(t, most, last.Count())

		_, err = rw.LockContext(t.Context())
		assert.ErrorIs(t, err, dlock.ErrTooManyHolds)
		_, err = rw.TryLockContext(t.Context())
		assert.ErrorIs(t, err, dlock.ErrTooManyHolds)
		assert.Panics(t, rw.Lock)
		assert.False(t, rw.TryLock())
		assert.Equal(t, most, last.Count())
		assert.NoError(t, h.Err())

		require.NoError(t, last.Unlock())
		again, err := rw.LockContext(t.Context())
		require.NoError(t, err)
		require.NoError(t, again.Unlock())
		core.PretendHandles(handleOf(h), 2-most)
		require.NoError(t, h.Unlock())
		require.NoError(t, c.Close())
	})
}

// asleep returns a client whose watchdog does nothing.
func asleep(t *testing.T, opts *dlock.Options) (*dlock.Client, store.Store) {
	s := memory.New()
	c, err := dlock.New(s, opts)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	core.StopWatchdog(clientOf(c))
	return c, s
}

// Fault 57: a pause in the critical section, longer than the lease. The first look
// afterwards finds the hold lost, by the clock and not by a timer.
func TestFault57PauseWhileHeld(t *testing.T) {
	type look func(*testing.T, *dlock.Hold, context.Context)
	for name, look := range map[string]look{
		"Err":    func(t *testing.T, h *dlock.Hold, _ context.Context) { assert.ErrorIs(t, h.Err(), dlock.ErrLost) },
		"Unlock": func(t *testing.T, h *dlock.Hold, _ context.Context) { assert.ErrorIs(t, h.Unlock(), dlock.ErrLost) },
		"Context": func(t *testing.T, h *dlock.Hold, ctx context.Context) {
			assert.ErrorIs(t, context.Cause(h.Context(ctx)), dlock.ErrLost)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := make(chan *dlock.Hold, 2)
				c, s := asleep(t, &dlock.Options{TTL: time.Second, OnLost: func(h *dlock.Hold) { told <- h }})
				h, err := c.Mutex("m").LockContext(t.Context())
				require.NoError(t, err)
				done, ctx := h.Done(), h.Context(t.Context())
				time.Sleep(time.Until(h.Deadline()) - 1)
				require.NoError(t, h.Err())
				time.Sleep(time.Nanosecond)
				look(t, h, t.Context())
				assert.True(t, coretest.Closed(done), "Done is not closed")
				assert.Equal(t, h.Err(), context.Cause(ctx))
				assert.ErrorIs(t, context.Cause(ctx), dlock.ErrLost)
				assert.Same(t, h, <-told)
				synctest.Wait()
				assert.Empty(t, told)
				coretest.WantFree(t, s, "m") // a lost hold is released at the store
			})
		})
	}
}

// The deadline of a hold keeps a margin to the end of the lease.
func TestFault57DeadlineKeepsAMargin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := asleep(t, &dlock.Options{TTL: time.Second})
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		assert.Equal(t, time.Second-12*time.Millisecond, time.Until(h.Deadline()))
		require.NoError(t, h.Unlock())
	})
}

// After a pause a re-entry is refused, and Do reports the loss.
func TestFault57PauseBeforeReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := asleep(t, &dlock.Options{TTL: time.Second})
		m := c.Mutex("m")
		err := m.Do(t.Context(), func(ctx context.Context) error {
			time.Sleep(time.Second)
			_, err := m.LockContext(ctx)
			return err
		})
		var e *dlock.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "lock", e.Op)
		assert.ErrorIs(t, err, dlock.ErrLost)

		locker := m.As(dlock.NewOwner())
		locker.Lock()
		locker.Lock()
		time.Sleep(time.Second)
		assert.Panics(t, locker.Lock)
		locker.Unlock()
		locker.Unlock()
	})
}

// Of the locks held through one value, the Unlock after a pause takes a lost one.
func TestFault57PauseBeforeUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := asleep(t, &dlock.Options{TTL: time.Second})
		m := c.Mutex("m")
		m.Lock()
		time.Sleep(time.Second)
		m.Lock() // by another goroutine
		m.Unlock()
		assert.Len(t, coretest.Inspect(t, s, "m").Holders, 1)
		m.Unlock()
	})
}
