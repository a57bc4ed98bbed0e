package dlock_test

import (
	"context"
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

// A call that the store has refused did not fail because of the holder, so its error names none. That is also
// so if the context has ended before the answer came.
func TestErrorOfARefusalNamesNoHolder(t *testing.T) {
	for name, deadline := range map[string]time.Duration{"in time": time.Minute, "after the deadline": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := coretest.NewSpy(memory.New())
				m := coretest.Open(t, s, &dlock.Options{Label: "web-3"}).Mutex("m")
				h := coretest.MustLock(t, t.Context(), m)
				s.OnAcquire(func(context.Context, store.Request) (store.Grant, error) {
					time.Sleep(2 * time.Second)
					return store.Grant{}, store.ErrRefused
				})
				_, err := m.LockContext(dlock.WithOwner(within(t, deadline), dlock.NewOwner()))
				coretest.WantError(t, err, "lock", "m", dlock.ErrRefused)
				assert.Empty(t, heldBy(t, err))
				assert.EqualError(t, err, `dlock: lock "m": `+store.ErrRefused.Error())
				require.NoError(t, h.Unlock())
			})
		})
	}
}

// The error of a look says what the store has said, and nothing else.
func TestErrorOfALook(t *testing.T) {
	eachLook(t, coretest.Refuse, func(t *testing.T, _ *dlock.Client, _, _ string, look func(context.Context) error) {
		var e *dlock.Error
		require.ErrorAs(t, look(t.Context()), &e)
		assert.EqualError(t, e.Err, dlock.ErrUnavailable.Error()+": "+coretest.ErrDown.Error())
	})
}

// Stats counts a look that is under way. Close cuts it, and waits until the store has returned.
func TestCloseWaitsForLooks(t *testing.T) {
	late := func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(time.Second)
		return ctx.Err()
	}
	eachLook(t, late, func(t *testing.T, c *dlock.Client, op, name string, look func(context.Context) error) {
		failed := make(chan error, 1)
		go func() { failed <- look(t.Context()) }()
		synctest.Wait()
		assert.Equal(t, dlock.Stats{Calls: 1}, coretest.Gauges(c))
		start := time.Now()
		require.NoError(t, c.Close())
		assert.Equal(t, time.Second, time.Since(start))
		coretest.WantError(t, <-failed, op, name, dlock.ErrClosed)
		assert.Zero(t, coretest.Gauges(c))
	})
}
