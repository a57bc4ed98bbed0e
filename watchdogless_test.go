package dlock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asleep returns a client whose watchdog does nothing any more, as in a process
// that was stopped: when it goes on, its own code may run before any timer has.
func asleep(t *testing.T, opts *Options) (*Client, store.Store) {
	s := memory.New()
	c, err := New(s, opts)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	c.dog.Close()
	return c, s
}

// Fault 57: a pause in the critical section, longer than the lease. The first
// look afterwards finds the hold lost, by the clock and not by a timer.
func TestFault57PauseWhileHeld(t *testing.T) {
	for name, look := range map[string]func(*testing.T, *Hold, *Mutex, context.Context){
		"Err":    func(t *testing.T, h *Hold, _ *Mutex, _ context.Context) { assert.Equal(t, ErrLost, h.Err()) },
		"Unlock": func(t *testing.T, h *Hold, _ *Mutex, _ context.Context) { assert.ErrorIs(t, h.Unlock(), ErrLost) },
		"Context": func(t *testing.T, h *Hold, _ *Mutex, ctx context.Context) {
			assert.Equal(t, ErrLost, context.Cause(h.Context(ctx)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := make(chan *Hold, 2)
				c, s := asleep(t, &Options{TTL: time.Second, OnLost: func(h *Hold) { told <- h }})
				m := c.Mutex("m")
				h, err := m.LockContext(t.Context())
				require.NoError(t, err)
				done, ctx := h.Done(), h.Context(t.Context())
				time.Sleep(time.Second - margin(time.Second) - 1)
				require.NoError(t, h.Err())
				time.Sleep(time.Nanosecond)
				look(t, h, m, t.Context())
				select {
				case <-done:
				default:
					assert.Fail(t, "Done is not closed")
				}
				assert.Equal(t, ErrLost, context.Cause(ctx))
				assert.Same(t, h, <-told)
				synctest.Wait()
				assert.Empty(t, told)
				state, err := s.Inspect(t.Context(), "m")
				require.NoError(t, err)
				assert.Empty(t, state.Holders, "a lost hold is released at the store")
			})
		})
	}
}

// A paused re-entry is not counted in, and a paused Do is told.
func TestFault57PauseBeforeReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := asleep(t, &Options{TTL: time.Second})
		m := c.Mutex("m")
		err := m.Do(t.Context(), func(ctx context.Context) error {
			time.Sleep(time.Second)
			_, err := m.LockContext(ctx)
			return err
		})
		var e *Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "lock", e.Op)
		assert.ErrorIs(t, err, ErrLost)

		locker := m.As(NewOwner())
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
		c, s := asleep(t, &Options{TTL: time.Second})
		m := c.Mutex("m")
		m.Lock()
		time.Sleep(time.Second)
		m.Lock() // somebody else's
		m.Unlock()
		state, err := s.Inspect(t.Context(), "m")
		require.NoError(t, err)
		assert.Len(t, state.Holders, 1)
		m.Unlock()
	})
}

// Fault 58 at its narrowest: the process stops when everything is decided and
// Lock has only to return. The clock is read after that.
func TestFault58PauseJustBeforeReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := asleep(t, &Options{TTL: time.Second, OnLost: func(*Hold) { assert.Fail(t, "told lost what nobody held") }})
		m := c.Mutex("m")
		for _, pushed := range []bool{true, false} {
			a := &acquisition{client: c, ctx: t.Context(), terms: m.d.terms, wait: true}
			a.party = c.names.join("m", newPrivateOwner())
			a.party.local.shard.mu.Unlock()
			at := c.newAttempt(a.terms, store.Exclusive, true)
			at.req.Owner = a.party.id
			g, err := s.Acquire(t.Context(), at.req)
			require.NoError(t, err)
			won := award{g.Token, g.Short, time.Now().Add(time.Second), pushed}
			time.Sleep(time.Second)
			h, err := a.install(at, won)
			assert.Nil(t, h)
			assert.True(t, errors.Is(err, ErrLost))
			sh := a.party.local.shard
			sh.mu.Lock()
			a.party.leave()
			sh.mu.Unlock()
			synctest.Wait()
			assert.Empty(t, c.names.shard("m").names)
			assert.Zero(t, c.cleaner.left())
		}
	})
}
