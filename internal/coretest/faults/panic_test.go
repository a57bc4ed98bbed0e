package faults

import (
	"context"
	"runtime"
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

// A store or an Observer that panics, or ends the goroutine, ends the call of its caller. The name is
// not kept: what the store may have granted is released, and the next call is served.
func TestPanicInTheStoreKeepsNoName(t *testing.T) {
	ends := map[string]func(){
		"panic":  func() { panic("the store is broken") },
		"Goexit": runtime.Goexit,
	}
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

// panicsAtEnd is a context whose Err panics once it has ended.
type panicsAtEnd struct{ context.Context }

func (c panicsAtEnd) Err() error {
	if err := c.Context.Err(); err != nil {
		panic("the context is broken")
	}
	return nil
}
