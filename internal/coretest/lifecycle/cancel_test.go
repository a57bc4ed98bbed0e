package lifecycle

import (
	"context"
	"math/rand/v2"
	"sync"
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

// A late grant of a cancelled call is given back, whenever it arrives.
func TestFault69CancelledDuringTheAcquireCall(t *testing.T) {
	for name, wait := range map[string]time.Duration{"at once": 0, "late": 20 * time.Second} {
		for what, lose := range map[string]bool{"reply comes": false, "reply lost": true} {
			t.Run(name+"/"+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := coretest.NewSpy(memory.New())
					c := coretest.Open(t, s, &dlock.Options{StoreTimeout: 25 * time.Second})
					s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
						g, err := s.Store.Acquire(ctx, req)
						if wait > 0 || lose {
							assert.NoError(t, ctx.Err())
						}
						if err := coretest.Sleep(ctx, wait); err != nil {
							return store.Grant{}, err
						}
						if lose {
							return store.Grant{}, coretest.Hang(ctx)
						}
						return g, err
					})
					ctx, cancel := context.WithCancel(t.Context())
					errs := make(chan error)
					go func() { _, err := c.Mutex("m").LockContext(ctx); errs <- err }()
					if wait == 0 && !lose {
						cancel()
						if err := <-errs; err != nil {
							coretest.WantError(t, err, "lock", "m", context.Canceled)
						}
						return
					}
					synctest.Wait()
					assert.Len(t, coretest.Inspect(t, s, "m").Holders, 1, "granted, and the client does not know")
					start := time.Now()
					cancel()
					coretest.WantError(t, <-errs, "lock", "m", context.Canceled)
					assert.Zero(t, time.Since(start))
					time.Sleep(26 * time.Second)
					synctest.Wait()
					coretest.WantFree(t, s, "m")
					s.Recover()
					require.True(t, c.Mutex("m").TryLock())
				})
			})
		}
	}
}

// Many calls are cancelled at random moments. They return at once and leave no place, no hold and
// no goroutine.
func TestFault68CancelWhileWaiting(t *testing.T) {
	for _, during := range []string{"up", "down", "silent"} {
		t.Run(during, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := memory.New()
				s := coretest.NewSpy(memory)
				peer := coretest.Open(t, memory.Peer(), nil)
				c := coretest.Open(t, s, &dlock.Options{TTL: time.Hour})
				held := coretest.MustLock(t, t.Context(), peer.RWMutex("m"))
				var wg sync.WaitGroup
				for i := range 500 {
					wg.Go(func() {
						time.Sleep(rand.N(5 * time.Second))
						ctx, cancel := context.WithCancel(t.Context())
						if i%5 == 0 {
							ctx = dlock.WithOwner(ctx, dlock.NewOwner()) // past the local queue
						}
						var at time.Time
						after := rand.N(10 * time.Second)
						time.AfterFunc(after, func() { at = time.Now(); cancel() })
						f := c.RWMutex("m").LockContext
						if i%2 == 0 {
							f = c.RWMutex("m").RLockContext
						}
						_, err := f(ctx)
						assert.ErrorIs(t, err, context.Canceled)
						assert.Zero(t, time.Since(at))
					})
				}
				time.Sleep(5 * time.Second)
				switch during {
				case "down":
					s.GoDown()
				case "silent":
					s.GoSilent()
				}
				wg.Wait()
				s.Recover()
				time.Sleep(10 * time.Second)
				assert.Empty(t, coretest.Inspect(t, s, "m").Queue)
				require.NoError(t, held.Unlock())
				coretest.WantFree(t, s, "m")
			})
		})
	}
}

// The release does not depend on the context of the lock call.
func TestFault70UnlockAfterTheContextHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		m := coretest.Open(t, s, nil).Mutex("m")
		ctx, cancel := context.WithCancel(t.Context())
		h := coretest.MustLock(t, ctx, m)
		cancel()
		s.OnRelease(func(ctx context.Context, ref store.Ref) error {
			assert.NoError(t, ctx.Err())
			return s.Store.Release(ctx, ref)
		})
		require.NoError(t, h.Unlock())
		coretest.WantFree(t, s, "m")

		ctx, cancel = context.WithCancel(t.Context())
		err := m.Do(ctx, func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() })
		assert.Equal(t, context.Canceled, err)
		coretest.WantFree(t, s, "m")
	})
}

// A call may be at three stages when its context ends, and the store in three states.
func TestContextEndsTheWaitAtOnce(t *testing.T) {
	for _, stage := range []string{"first call", "store's queue", "local queue"} {
		for during, change := range map[string]func(*coretest.Spy){
			"up": func(*coretest.Spy) {}, "down": (*coretest.Spy).GoDown, "silent": (*coretest.Spy).GoSilent,
		} {
			t.Run(stage+"/"+during, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					memory := memory.New()
					holder := coretest.Open(t, memory.Peer(), nil)
					s := coretest.NewSpy(memory)
					c := coretest.Open(t, s, &dlock.Options{TTL: time.Minute})
					h := coretest.MustLock(t, t.Context(), holder.Mutex("m"))
					if stage == "first call" {
						change(s)
					}
					first := make(chan struct{})
					if stage == "local queue" {
						m := c.Mutex("m")
						go func() { defer close(first); m.Lock(); m.Unlock() }()
						synctest.Wait()
					}
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan error)
					go func() {
						_, err := c.Mutex("m").LockContext(ctx)
						done <- err
					}()
					synctest.Wait()
					change(s)
					time.Sleep(7 * time.Second)

					start := time.Now()
					cancel()
					err := <-done
					assert.Zero(t, time.Since(start))
					coretest.WantError(t, err, "lock", "m", context.Canceled)
					s.Recover()
					require.NoError(t, h.Unlock())
					if stage == "local queue" {
						<-first
					}
				})
			})
		}
	}
}

func TestContextDeadlineEndsTheWaitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		m := coretest.Open(t, s, nil).Mutex("m")
		s.GoSilent()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := m.LockContext(ctx)
		assert.Equal(t, time.Second, time.Since(start))
		coretest.WantError(t, err, "lock", "m", context.DeadlineExceeded)
		s.Recover()
	})
}
