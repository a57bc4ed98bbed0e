package dlock_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
)

// record keeps what an observer saw.
type record struct {
	mu     sync.Mutex
	begun  int // Begin calls less End calls
	locks  []dlock.LockEvent
	holds  []dlock.HoldEvent
	calls  []dlock.CallEvent
	within []string // the lock that each call of the store was made within
}

type beganBy struct{}

func (r *record) begin(ctx context.Context, what string) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun++
	return context.WithValue(ctx, beganBy{}, what)
}

func (r *record) end(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun--
	f()
}

func (r *record) BeginLock(ctx context.Context, op, name string) context.Context {
	return r.begin(ctx, op+" "+name)
}

func (r *record) EndLock(ctx context.Context, e dlock.LockEvent) {
	r.end(func() { r.locks = append(r.locks, e) })
}

func (r *record) EndHold(e dlock.HoldEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds = append(r.holds, e)
}

func (r *record) BeginCall(ctx context.Context, op, _ string) context.Context {
	by, _ := ctx.Value(beganBy{}).(string)
	r.mu.Lock()
	r.within = append(r.within, op+" in "+by)
	r.mu.Unlock()
	return r.begin(ctx, op)
}

func (r *record) EndCall(_ context.Context, e dlock.CallEvent) {
	r.end(func() { r.calls = append(r.calls, e) })
}

func observed(t *testing.T, s store.Store, opts dlock.Options) (*dlock.Client, *record) {
	r := new(record)
	opts.Observer = r
	c, err := dlock.New(s, &opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		assert.Zero(t, r.begun, "a Begin has no End")
	})
	return c, r
}

// failing is an observer that fails when it is told of the first lock.
type failing struct {
	record
	fail func()
}

func (f *failing) EndLock(ctx context.Context, e dlock.LockEvent) {
	f.record.EndLock(ctx, e)
	if fail := f.fail; fail != nil {
		f.fail = nil
		fail()
	}
}

// A panic in an observer, or the end of its goroutine, ends the call. The lock that was just granted is released.
func TestObserverThatFailsKeepsNoName(t *testing.T) {
	fails := map[string]func(){"panic": func() { panic("the observer is broken") }, "Goexit": runtime.Goexit}
	calls := map[string]func(context.Context, *dlock.Mutex) error{
		"LockContext": func(ctx context.Context, m *dlock.Mutex) error { _, err := m.LockContext(ctx); return err },
		"Do": func(ctx context.Context, m *dlock.Mutex) error {
			return m.Do(ctx, func(context.Context) error { return nil })
		},
	}
	for how, fail := range fails {
		for what, call := range calls {
			t.Run(what+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := memory.New()
					c, err := dlock.New(s, &dlock.Options{Observer: &failing{fail: fail}})
					require.NoError(t, err)
					defer c.Close()
					over := make(chan struct{})
					go func() {
						defer close(over)
						defer func() { _ = recover() }()
						assert.Fail(t, "the call returned", "%v", call(t.Context(), c.Mutex("m")))
					}()
					<-over
					synctest.Wait()
					coretest.WantFree(t, s, "m")
					assert.Zero(t, coretest.Gauges(c))
				})
			})
		}
	}
}

func TestObserverSeesLocksHoldsAndCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := observed(t, memory.New(), dlock.Options{TTL: 3 * time.Second})
		h, err := c.RWMutex("m").RLockContext(t.Context())
		require.NoError(t, err)
		_, err = c.Mutex("m").TryLockContext(t.Context())
		require.ErrorIs(t, err, dlock.ErrHeld)
		time.Sleep(1500 * time.Millisecond) // renews once
		require.NoError(t, h.Unlock())

		require.Len(t, r.locks, 2)
		assert.Equal(t, dlock.LockEvent{Op: "rlock", Name: "m"}, r.locks[0])
		assert.Equal(t, "trylock", r.locks[1].Op)
		assert.ErrorIs(t, r.locks[1].Err, dlock.ErrHeld)
		assert.Equal(t, []dlock.HoldEvent{{Name: "m", Shared: true, Held: 1500 * time.Millisecond}}, r.holds)
		var ops []string
		for _, e := range r.calls {
			ops = append(ops, e.Op)
			assert.Equal(t, "m", e.Name)
			assert.Equal(t, 1, e.Names)
		}
		assert.Equal(t, []string{"acquire", "acquire", "renew", "release"}, ops)
		assert.Equal(t, []string{"acquire in rlock m", "acquire in trylock m", "renew in ", "release in "}, r.within)
	})
}

func TestObserverSeesWaitsAndNestedHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := observed(t, memory.New(), dlock.Options{})
		m := c.Mutex("m")
		var wait sync.WaitGroup
		err := m.Do(t.Context(), func(ctx context.Context) error {
			wait.Go(func() {
				m.Lock()
				time.Sleep(time.Nanosecond) // it ends when Do waits below, and the end of Do's hold has been told
				m.Unlock()
			})
			time.Sleep(time.Second)
			return m.Do(ctx, func(context.Context) error { return nil })
		})
		require.NoError(t, err)
		wait.Wait()
		require.Len(t, r.holds, 3)
		assert.True(t, r.holds[0].Nested)
		assert.Equal(t, dlock.HoldEvent{Name: "m", Held: time.Second}, r.holds[1])
		require.Len(t, r.locks, 3)
		assert.Equal(t, time.Second, r.locks[2].Took, "the wait")
	})
}

// A loss that only the release finds is told too, as OnLost and Stats tell it.
func TestObserverSeesLossAtUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := observed(t, memory.New(), dlock.Options{})
		first := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		h := coretest.MustLock(t, first.Context(t.Context()), c.Mutex("m"))
		require.NoError(t, first.Unlock())
		_, err := c.Break(t.Context(), "m")
		require.NoError(t, err)
		require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		synctest.Wait()
		require.Len(t, r.holds, 2)
		assert.Equal(t, dlock.LostGone, r.holds[1].Lost)
		assert.False(t, r.holds[1].Nested, "it is the last of its hold")
		assert.EqualValues(t, 1, c.Stats().LostGone)
	})
}

// The cause of each kind of loss is told, and a hold that Close ends is not lost.
func TestObserverSeesLosses(t *testing.T) {
	for name, x := range map[string]struct {
		opts dlock.LockOption
		lose func(*coretest.Spy)
		want dlock.LossCause
	}{
		"deadline": {dlock.WithTTL(time.Second), func(s *coretest.Spy) { s.CutRenewals(coretest.Refuse) }, dlock.LostDeadline},
		"fixed":    {dlock.WithoutRenewal(), func(*coretest.Spy) {}, dlock.LostFixed},
		"max hold": {dlock.WithMaxHold(time.Second), func(*coretest.Spy) {}, dlock.LostMaxHold},
		"gone":     {dlock.WithTTL(time.Second), func(s *coretest.Spy) { s.Store.(store.Breaker).Break(context.Background(), "m") }, dlock.LostGone},
		"closed":   {dlock.WithTTL(time.Second), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := coretest.NewSpy(memory.New())
				c, r := observed(t, s, dlock.Options{TTL: time.Second})
				_, err := c.Mutex("m", x.opts).LockContext(t.Context())
				require.NoError(t, err)
				if x.lose == nil {
					c.Close()
				} else {
					x.lose(s)
					time.Sleep(time.Second)
				}
				synctest.Wait()
				require.Len(t, r.holds, 1)
				assert.Equal(t, x.want, r.holds[0].Lost)
			})
		})
	}
}

// One handle of each hold that is lost is not nested, also if the handle that had the lock first is
// gone: so who counts those counts as Stats does.
func TestObserverSeesEachLossOnce(t *testing.T) {
	for name, x := range map[string]struct {
		holds func(t *testing.T, rw *dlock.RWMutex) (all []*dlock.Hold)
		lost  int64
	}{
		"nested": {func(t *testing.T, rw *dlock.RWMutex) []*dlock.Hold {
			outer := coretest.MustLock(t, t.Context(), rw)
			return []*dlock.Hold{outer, coretest.MustLock(t, outer.Context(t.Context()), rw)}
		}, 1},
		"nested, and the first is unlocked": {func(t *testing.T, rw *dlock.RWMutex) []*dlock.Hold {
			outer := coretest.MustLock(t, t.Context(), rw)
			inner := coretest.MustLock(t, outer.Context(t.Context()), rw)
			require.NoError(t, outer.Unlock())
			return []*dlock.Hold{inner}
		}, 1},
		"reader inside the writer": {func(t *testing.T, rw *dlock.RWMutex) []*dlock.Hold {
			outer := coretest.MustLock(t, t.Context(), rw)
			return []*dlock.Hold{outer, coretest.MustRLock(t, outer.Context(t.Context()), rw)}
		}, 2},
		"downgrade": {func(t *testing.T, rw *dlock.RWMutex) []*dlock.Hold {
			outer := coretest.MustLock(t, t.Context(), rw)
			inner := coretest.MustRLock(t, outer.Context(t.Context()), rw)
			require.NoError(t, outer.Unlock())
			return []*dlock.Hold{inner}
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memory.New()
				c, r := observed(t, s, dlock.Options{})
				all := x.holds(t, c.RWMutex("a"))
				_, err := s.Peer().Break(t.Context(), "a")
				require.NoError(t, err)
				for _, h := range all {
					<-h.Done()
					h.Unlock()
				}
				synctest.Wait()
				r.mu.Lock()
				defer r.mu.Unlock()
				var lost int64
				for _, e := range r.holds {
					if e.Lost != "" && !e.Nested {
						lost++
					}
				}
				assert.Equal(t, x.lost, lost)
				assert.Equal(t, x.lost, c.Stats().LostGone)
			})
		})
	}
}

// A handle that was lost before the client could watch it is told all the same.
func TestObserverSeesAHoldThatIsOverAtOnce(t *testing.T) {
	c, r := observed(t, memory.New(), dlock.Options{MaxHold: 1})
	h, err := c.Mutex("m").LockContext(t.Context())
	require.NoError(t, err)
	<-h.Done()
	require.NoError(t, c.Close())
	assert.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.holds) == 1 && r.holds[0].Lost == dlock.LostMaxHold
	}, 10*time.Second, time.Millisecond)
}

// Beside an observer and a warning, Unlock finds the lost one of the holds of Lock.
func TestObservedUnlockEndsTheLostHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, r := observed(t, s, dlock.Options{TTL: time.Second})
		m := c.Mutex("m", dlock.WithMaxHold(3*time.Second), dlock.WithGrace(100*time.Millisecond))
		m.Lock()
		time.Sleep(4 * time.Second)
		m.Lock() // by another goroutine
		m.Unlock()
		assert.Len(t, coretest.Inspect(t, s, "m").Holders, 1, "the lost hold was unlocked")
		m.Unlock()
		coretest.WantFree(t, s, "m")
		require.NoError(t, c.Close())
		synctest.Wait()
		require.Len(t, r.holds, 2)
		assert.Equal(t, dlock.LostMaxHold, r.holds[0].Lost)
		assert.Empty(t, r.holds[1].Lost)
	})
}

// A store of which a client is observed keeps what it can do, and says what it cannot.
func TestObserverOfListAndBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := observed(t, memory.New(), dlock.Options{})
		_, err := c.Mutex("m").LockContext(t.Context())
		require.NoError(t, err)
		names, err := c.List(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"m"}, names)
		state, err := c.Inspect(t.Context(), "m")
		require.NoError(t, err)
		assert.Len(t, state.Holders, 1)
		n, err := c.Break(t.Context(), "m")
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		r.mu.Lock()
		for i, op := range []string{"acquire", "list", "inspect", "break"} {
			assert.Equal(t, op, r.calls[i].Op)
		}
		r.mu.Unlock()

		plain, _ := observed(t, struct{ store.Store }{memory.New()}, dlock.Options{})
		_, err = plain.List(t.Context())
		assert.ErrorIs(t, err, dlock.ErrUnsupported)
		_, err = plain.Break(t.Context(), "m")
		assert.ErrorIs(t, err, dlock.ErrUnsupported)
	})
}

// An observer that is stuck at the end of one lost hold delays no other loss.
func TestObserverThatBlocksDelaysNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := &stuckObserver{record: new(record), release: make(chan struct{})}
		s := coretest.NewSpy(memory.New())
		c, err := dlock.New(s, &dlock.Options{TTL: time.Second, Observer: stuck})
		require.NoError(t, err)
		a, err := c.Mutex("a").LockContext(t.Context())
		require.NoError(t, err)
		b, err := c.Mutex("b").LockContext(t.Context())
		require.NoError(t, err)
		s.CutRenewals(coretest.Refuse)
		time.Sleep(time.Second)
		assert.True(t, coretest.Closed(a.Done()) && coretest.Closed(b.Done()))
		assert.True(t, errors.Is(a.Err(), dlock.ErrLost) && errors.Is(b.Err(), dlock.ErrLost))
		close(stuck.release)
		c.Close()
	})
}

type stuckObserver struct {
	*record
	release chan struct{}
}

func (s *stuckObserver) EndHold(dlock.HoldEvent) { <-s.release }
