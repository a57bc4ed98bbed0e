package faults

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ends are ways in which a store ends the goroutine of its caller.
var ends = map[string]func(){
	"panic":  func() { panic("the store is broken") },
	"Goexit": runtime.Goexit,
}

// A store or an Observer that panics, or ends the goroutine, ends the call of its caller. The name is
// not kept: what the store may have granted is released, and the next call is served.
func TestPanicInTheStoreKeepsNoName(t *testing.T) {
	calls := map[string]func(*dlock.Mutex, context.Context) (*dlock.Hold, error){
		"Lock":    (*dlock.Mutex).LockContext,
		"TryLock": (*dlock.Mutex).TryLockContext,
	}
	for when, before := range map[string]bool{"before the grant": true, "after the grant": false} {
		for how, end := range ends {
			for what, call := range calls {
				t.Run(what+" "+how+" "+when, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := coretest.NewSpy(memory.New())
						c := coretest.Open(t, s, nil)
						s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
							s.OnAcquire(s.Store.Acquire)
							if !before {
								_, err := s.Store.Acquire(ctx, req)
								assert.NoError(t, err)
							}
							time.Sleep(time.Second) // others queue behind the call
							end()
							panic("unreachable")
						})
						over := make(chan struct{})
						go func() {
							defer close(over)
							defer func() { _ = recover() }()
							_, err := call(c.Mutex("m"), t.Context())
							assert.Fail(t, "the call returned", "%v", err)
						}()
						synctest.Wait()
						waiter := make(chan *dlock.Hold)
						began := time.Now()
						go func() { waiter <- coretest.MustLock(t, t.Context(), c.Mutex("m")) }()
						<-over
						h := <-waiter
						assert.Less(t, time.Since(began), 2*time.Second)
						require.NoError(t, h.Unlock())
						synctest.Wait()
						coretest.WantFree(t, s, "m")
						assert.Zero(t, coretest.Gauges(c))
					})
				})
			}
		}
	}
}

// The same during a release: it goes on in the background, and the Observer hears of the end.
func TestPanicInTheStoreDuringUnlock(t *testing.T) {
	for how, end := range ends {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ended := coretest.NewSpy(memory.New()), new(endsOfHolds)
				c := coretest.Open(t, s, &dlock.Options{Observer: ended})
				h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
				s.OnRelease(func(context.Context, store.Ref) error {
					s.OnRelease(s.Store.Release)
					end()
					panic("unreachable")
				})
				over := make(chan struct{})
				go func() {
					defer close(over)
					defer func() { _ = recover() }()
					assert.Fail(t, "Unlock returned", "%v", h.Unlock())
				}()
				<-over
				began := time.Now()
				require.NoError(t, coretest.MustLock(t, t.Context(), c.Mutex("m")).Unlock())
				assert.Less(t, time.Since(began), time.Second)
				assert.EqualValues(t, 2, ended.count.Load(), "of both holds")
				synctest.Wait()
				coretest.WantFree(t, s, "m")
				assert.Zero(t, coretest.Gauges(c))
			})
		})
	}
}

// endsOfHolds counts the holds that have ended.
type endsOfHolds struct{ count atomic.Int64 }

func (*endsOfHolds) BeginLock(ctx context.Context, _, _ string) context.Context { return ctx }
func (*endsOfHolds) EndLock(context.Context, dlock.LockEvent)                   {}
func (e *endsOfHolds) EndHold(dlock.HoldEvent)                                  { e.count.Add(1) }
func (*endsOfHolds) BeginCall(ctx context.Context, _, _ string) context.Context { return ctx }
func (*endsOfHolds) EndCall(context.Context, dlock.CallEvent)                   {}

// A store that ends the goroutine of a waiting request, in the background, leaves its outcome unknown. The
// request is repeated.
func TestGoexitInTheBackgroundEndsNoWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		deaf := faultstore.New(locks)
		deaf.OnEvent(faultstore.EveryEvent, faultstore.DropEvent())
		s := coretest.NewSpy(deaf)
		c := coretest.Open(t, s, nil)
		far := coretest.MustLock(t, t.Context(), coretest.Open(t, locks.Peer(), nil).Mutex("m"))
		var asked atomic.Int64
		s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
			if asked.Add(1) == 2 {
				runtime.Goexit()
			}
			return deaf.Acquire(ctx, req)
		})
		waiter := make(chan *dlock.Hold, 1)
		go func() { waiter <- coretest.MustLock(t, t.Context(), c.Mutex("m")) }()
		time.Sleep(coretest.WaitTTL)
		require.GreaterOrEqual(t, asked.Load(), int64(2))
		require.NoError(t, far.Unlock())
		time.Sleep(coretest.WaitTTL)
		require.Len(t, waiter, 1)
		require.NoError(t, (<-waiter).Unlock())
		synctest.Wait()
		coretest.WantFree(t, locks, "m")
	})
}

// The same while another call of the owner is granted the lock.
func TestPanicInTheStoreBesideAnotherCallOfTheOwnerLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		m := c.Mutex("m").As(dlock.NewOwner())
		s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
			s.OnAcquire(s.Store.Acquire)
			time.Sleep(time.Second)
			_, err := s.Store.Acquire(ctx, req)
			assert.NoError(t, err)
			panic("the store is broken")
		})
		over := make(chan any)
		go func() {
			defer func() { over <- recover() }()
			m.Lock()
		}()
		synctest.Wait()
		h := coretest.MustLock(t, t.Context(), m)
		require.Equal(t, "the store is broken", <-over)
		require.NoError(t, h.Err())
		require.NoError(t, h.Unlock())
		synctest.Wait()
		coretest.WantFree(t, s, "m")
		assert.Zero(t, coretest.Gauges(c))
	})
}

// The same for a context that panics while the call waits.
func TestPanicInTheContextKeepsNoName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		first := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.PanicsWithValue(t, "the context is broken", func() {
			_, _ = c.Mutex("m").LockContext(panicsAtEnd{ctx})
		})
		require.NoError(t, first.Unlock())
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		require.NoError(t, h.Unlock())
		synctest.Wait()
		coretest.WantFree(t, s, "m")
		assert.Zero(t, coretest.Gauges(c))
	})
}

// A nested call that is refused leaves the hold of its owner as it is, whenever its context panics.
func TestPanicInTheContextOfANestedCallKeepsTheHold(t *testing.T) {
	panics := 0
	for at := 1; ; at++ {
		var fired bool
		synctest.Test(t, func(t *testing.T) {
			s := coretest.NewSpy(memory.New())
			c, other := coretest.Open(t, s, nil), coretest.Open(t, s, nil)
			rw := c.RWMutex("m").As(dlock.NewOwner())
			h, err := rw.RLockContext(t.Context())
			require.NoError(t, err)
			beside, err := other.RWMutex("m").RLockContext(t.Context())
			require.NoError(t, err)
			func() {
				defer func() { fired = recover() != nil }()
				_, err := rw.LockContext(&panicsAt{Context: t.Context(), at: at})
				assert.ErrorIs(t, err, dlock.ErrUpgrade)
			}()
			synctest.Wait()
			calls := s.Calls()
			again, err := rw.TryRLockContext(t.Context())
			require.NoError(t, err)
			assert.Equal(t, calls, s.Calls(), "panic %d: the client knows that its owner has the lock", at)
			require.NoError(t, again.Unlock())
			require.NoError(t, h.Unlock())
			require.NoError(t, beside.Unlock())
			require.NoError(t, c.Close())
			synctest.Wait()
			coretest.WantFree(t, s, "m")
			assert.Zero(t, coretest.Gauges(c))
		})
		if !fired {
			break
		}
		panics++
	}
	assert.Greater(t, panics, 2, "the call looks at its context several times")
}

// What a request of unknown outcome has at the store is released, whenever the context of its caller panics.
func TestPanicInTheContextOfAnUnansweredCallLeavesNothing(t *testing.T) {
	panics := 0
	for at := 1; ; at++ {
		var fired bool
		synctest.Test(t, func(t *testing.T) {
			s := coretest.NewSpy(memory.New())
			c := coretest.Open(t, s, nil)
			s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
				s.OnAcquire(s.Store.Acquire)
				_, err := s.Store.Acquire(ctx, req)
				assert.NoError(t, err)
				return store.Grant{}, coretest.ErrDown
			})
			func() {
				defer func() { fired = recover() != nil }()
				h, err := c.Mutex("m").LockContext(&panicsAt{Context: t.Context(), at: at})
				require.NoError(t, err)
				require.NoError(t, h.Unlock())
			}()
			time.Sleep(5 * time.Second)
			coretest.WantFree(t, s, "m")
			assert.Zero(t, coretest.Gauges(c), "panic %d", at)
		})
		if !fired {
			break
		}
		panics++
	}
	assert.Greater(t, panics, 2, "the call looks at its context several times")
}

// panicsAt is a context whose Err panics at the call with that number.
type panicsAt struct {
	context.Context
	at, calls int
}

func (c *panicsAt) Err() error {
	if c.calls++; c.calls == c.at {
		panic("the context is broken")
	}
	return c.Context.Err()
}

// panicsAtEnd is a context whose Err panics once it has ended.
type panicsAtEnd struct{ context.Context }

func (c panicsAtEnd) Err() error {
	if err := c.Context.Err(); err != nil {
		panic("the context is broken")
	}
	return nil
}

// A call whose context panics while it waits leaves its place at the store to the call behind it.
func TestPanicInTheContextLeavesThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		far := coretest.MustLock(t, t.Context(), coretest.Open(t, s.Peer(), nil).Mutex("m"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		over := make(chan any)
		go func() {
			defer func() { over <- recover() }()
			_, _ = c.Mutex("m").LockContext(panicsAtEnd{ctx})
		}()
		synctest.Wait()
		next := make(chan *dlock.Hold, 1)
		go func() { next <- coretest.MustLock(t, t.Context(), c.Mutex("m")) }()
		synctest.Wait()
		place := coretest.Inspect(t, s, "m").Queue[0].ID
		require.Equal(t, "the context is broken", <-over)
		synctest.Wait()
		require.NoError(t, far.Unlock())
		synctest.Wait()
		holders := coretest.Inspect(t, s, "m").Holders
		require.Len(t, holders, 1)
		assert.Equal(t, place, holders[0].ID)
		require.NoError(t, (<-next).Unlock())
		synctest.Wait()
		coretest.WantFree(t, s, "m")
		assert.Zero(t, coretest.Gauges(c))
	})
}
