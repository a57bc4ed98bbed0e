package dlock_test

import (
	"context"
	"errors"
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

func TestInspectShowsHolderAndWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		holder := coretest.Open(t, s, &dlock.Options{Label: "web-3"})
		other := coretest.Open(t, s.Peer(), &dlock.Options{Label: "web-4"})

		state, err := other.Inspect(t.Context(), "m")
		require.NoError(t, err)
		assert.Empty(t, state.Holders)
		assert.Empty(t, state.Queue)
		names, err := other.List(t.Context())
		require.NoError(t, err)
		assert.Empty(t, names)

		h := coretest.MustLock(t, t.Context(), holder.Mutex("m"))
		free := coretest.MustLock(t, t.Context(), holder.Mutex("n"))
		waits := make(chan *dlock.Hold)
		go func() { waits <- coretest.MustLock(t, t.Context(), other.Mutex("m")) }()
		synctest.Wait()

		state, err = other.Inspect(t.Context(), "m")
		require.NoError(t, err)
		require.Len(t, state.Holders, 1)
		require.Len(t, state.Queue, 1)
		assert.Equal(t, "m", state.Name)
		assert.Equal(t, "web-3", state.Holders[0].Label)
		assert.Equal(t, h.Token(), state.Holders[0].Token)
		assert.Equal(t, "web-4", state.Queue[0].Label)
		names, err = holder.List(t.Context())
		require.NoError(t, err)
		assert.ElementsMatch(t, []string{"m", "n"}, names)

		require.NoError(t, h.Unlock())
		require.NoError(t, free.Unlock())
		require.NoError(t, (<-waits).Unlock())
	})
}

func TestBreakTakesTheLockFromItsHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		holder, other := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		h := coretest.MustLock(t, t.Context(), holder.Mutex("m"))

		broken, err := other.Break(t.Context(), "m")
		require.NoError(t, err)
		assert.Equal(t, 1, broken)
		next := coretest.MustLock(t, t.Context(), other.Mutex("m"))
		assert.Greater(t, next.Token(), h.Token())

		select {
		case <-h.Done():
		case <-time.After(30 * time.Second):
			require.Fail(t, "the old holder has not learned of it within a TTL")
		}
		require.ErrorIs(t, h.Err(), dlock.ErrLost)
		require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		require.NoError(t, next.Err())
		require.NoError(t, next.Unlock())

		broken, err = other.Break(t.Context(), "m")
		require.NoError(t, err)
		assert.Zero(t, broken)
	})
}

// plainStore has none of the optional abilities.
type plainStore struct{ store.Store }

func TestListAndBreakNeedTheStoresAbility(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, plainStore{memory.New()}, nil)
		_, err := c.List(t.Context())
		coretest.WantError(t, err, "list", "", dlock.ErrUnsupported)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		assert.Contains(t, err.Error(), "plainStore cannot list")
		_, err = c.Break(t.Context(), "m")
		coretest.WantError(t, err, "break", "m", dlock.ErrUnsupported)
		assert.Contains(t, err.Error(), "plainStore cannot break")
		_, err = c.Inspect(t.Context(), "m")
		require.NoError(t, err)
	})
}

// lookingStore answers Inspect, List and Break by a function of the test.
type lookingStore struct {
	*memory.Store
	answer func(context.Context) error
}

func (s *lookingStore) Inspect(ctx context.Context, _ string) (store.State, error) {
	return store.State{}, s.answer(ctx)
}
func (s *lookingStore) List(ctx context.Context) ([]string, error)       { return nil, s.answer(ctx) }
func (s *lookingStore) Break(ctx context.Context, _ string) (int, error) { return 0, s.answer(ctx) }

// looks are the calls of a client that take part in no lock, by the operation that errors name.
var looks = map[string]func(context.Context, *dlock.Client) error{
	"inspect": func(ctx context.Context, c *dlock.Client) error { _, err := c.Inspect(ctx, "m"); return err },
	"list":    func(ctx context.Context, c *dlock.Client) error { _, err := c.List(ctx); return err },
	"break":   func(ctx context.Context, c *dlock.Client) error { _, err := c.Break(ctx, "m"); return err },
}

// eachLook tests each of the calls with a store that answers by a function.
func eachLook(t *testing.T, answer func(context.Context) error, test func(t *testing.T, c *dlock.Client, op, name string, look func(context.Context) error)) {
	for op, look := range looks {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := coretest.Open(t, &lookingStore{memory.New(), answer}, &dlock.Options{StoreTimeout: 2 * time.Second})
				name := "m"
				if op == "list" {
					name = ""
				}
				test(t, c, op, name, func(ctx context.Context) error { return look(ctx, c) })
			})
		})
	}
}

func TestLooksAreBoundedByTheStoreTimeout(t *testing.T) {
	eachLook(t, coretest.Hang, func(t *testing.T, _ *dlock.Client, op, name string, look func(context.Context) error) {
		start := time.Now()
		err := look(t.Context())
		coretest.WantError(t, err, op, name, dlock.ErrUnavailable)
		assert.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's context has not ended")
		assert.InDelta(t, 2*time.Second, time.Since(start), float64(100*time.Millisecond))
	})
}

func TestLooksAreBoundedByTheirContext(t *testing.T) {
	eachLook(t, coretest.Hang, func(t *testing.T, _ *dlock.Client, op, name string, look func(context.Context) error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := look(ctx)
		coretest.WantError(t, err, op, name, context.DeadlineExceeded)
		coretest.WantError(t, err, op, name, dlock.ErrUnavailable)
		assert.Equal(t, time.Second, time.Since(start))

		err = look(ctx) // has ended: the store is not asked
		coretest.WantError(t, err, op, name, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, dlock.ErrUnavailable)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

func TestLooksCarryTheStoresError(t *testing.T) {
	eachLook(t, coretest.Refuse, func(t *testing.T, _ *dlock.Client, op, name string, look func(context.Context) error) {
		err := look(t.Context())
		coretest.WantError(t, err, op, name, dlock.ErrUnavailable)
		coretest.WantError(t, err, op, name, coretest.ErrDown)
	})
	for _, certain := range []error{store.ErrForeignKey, store.ErrRefused, store.ErrClosed, store.ErrUnsupported} {
		answer := func(context.Context) error { return certain }
		eachLook(t, answer, func(t *testing.T, _ *dlock.Client, op, name string, look func(context.Context) error) {
			err := look(t.Context())
			coretest.WantError(t, err, op, name, certain)
			assert.NotErrorIs(t, err, dlock.ErrUnavailable)
		})
	}
}

func TestCloseEndsLooks(t *testing.T) {
	eachLook(t, coretest.Hang, func(t *testing.T, c *dlock.Client, op, name string, look func(context.Context) error) {
		failed := make(chan error, 1)
		go func() { failed <- look(context.Background()) }()
		synctest.Wait()
		start := time.Now()
		require.NoError(t, c.Close())
		coretest.WantError(t, <-failed, op, name, dlock.ErrClosed)
		coretest.WantError(t, look(t.Context()), op, name, dlock.ErrClosed)
		assert.Zero(t, time.Since(start))
	})
}

func TestLooksCheckTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), nil)
		_, err := c.Inspect(t.Context(), "")
		coretest.WantError(t, err, "inspect", "", dlock.ErrInvalidName)
		_, err = c.Break(t.Context(), "")
		coretest.WantError(t, err, "break", "", dlock.ErrInvalidName)
	})
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
