package dlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pausing delivers the events of a store late.
type pausing struct {
	*spy
	pause time.Duration
}

func (s *pausing) Listen(sink func(store.Event)) (stop func()) {
	return s.spy.Listen(func(e store.Event) {
		time.AfterFunc(s.pause, func() { sink(e) })
	})
}

// Fault 58: a pause between the grant and the return of Lock, longer than the
// lease. What arrives then is no hold: Lock says so, and gives it back.
func TestFault58PauseBetweenGrantAndReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		var lost losses
		c := open(t, s, &dlock.Options{TTL: time.Second, StoreTimeout: time.Hour, OnLost: lost.add})
		for pause, ok := range map[time.Duration]bool{
			time.Second - claimMargin(time.Second) - 1: true,
			time.Second - claimMargin(time.Second):     false,
			time.Second:                                false,
			2 * time.Second:                            false,
		} {
			s.onAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
				g, err := s.Store.Acquire(ctx, req)
				time.Sleep(pause)
				return g, err
			})
			h, err := c.Mutex("m").TryLockContext(t.Context())
			if !ok {
				wantError(t, err, "trylock", "m", dlock.ErrLost)
				synctest.Wait()
				wantFree(t, s, "m")
				continue
			}
			require.NoError(t, err)
			require.NoError(t, h.Err())
			require.NoError(t, h.Unlock())
		}
		assert.Empty(t, lost.all(), "nobody held it")
	})
}

// As above, with Lock, which does not give up.
func TestFault58LockTriesAgainAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		m := open(t, s, &dlock.Options{TTL: time.Second, StoreTimeout: time.Hour}).Mutex("m")
		pauses := 3
		s.onAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, req)
			if pauses--; pauses >= 0 {
				time.Sleep(990 * time.Millisecond)
			}
			return g, err
		})
		m.Lock()
		assert.Negative(t, pauses)
		assert.Len(t, inspect(t, s, "m").Holders, 1)
		m.Unlock()
	})
}

// As above, with a grant that comes as an event: it is worth only what remains
// of the short lease of a promotion, and the waiter asks instead.
func TestFault58PauseBeforeTheEventIsSeen(t *testing.T) {
	for _, pause := range []time.Duration{900 * time.Millisecond, 990 * time.Millisecond, time.Second, 3 * time.Second} {
		t.Run(pause.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &pausing{newSpy(memory.New()), pause}
				peer := open(t, s.Store.(*memory.Store).Peer(), nil)
				c := open(t, s, &dlock.Options{TTL: time.Minute, WaitTTL: time.Second})
				first := mustLock(t, t.Context(), peer.Mutex("m"))
				m := c.Mutex("m")
				done := make(chan *dlock.Hold)
				go func() {
					h, err := m.LockContext(t.Context())
					assert.NoError(t, err)
					done <- h
				}()
				time.Sleep(100 * time.Millisecond)
				require.NoError(t, first.Unlock())
				h := <-done
				require.NoError(t, h.Err())
				holders := inspect(t, s, "m").Holders
				require.Len(t, holders, 1)
				assert.Equal(t, h.Token(), holders[0].Token, "the store agrees")
				time.Sleep(time.Hour)
				require.NoError(t, h.Unlock())
				wantFree(t, s, "m")
			})
		})
	}
}

// Fault 68 in the other order: late grants of callers who left are given back,
// whenever they come.
func TestFault69CancelledDuringTheAcquireCall(t *testing.T) {
	for name, wait := range map[string]time.Duration{"at once": 0, "late": 20 * time.Second} {
		for what, lose := range map[string]bool{"reply comes": false, "reply lost": true} {
			t.Run(name+"/"+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSpy(memory.New())
					c := open(t, s, &dlock.Options{StoreTimeout: 25 * time.Second})
					s.onAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
						g, err := s.Store.Acquire(ctx, req)
						assert.NoError(t, ctx.Err())
						time.Sleep(wait)
						if lose {
							return store.Grant{}, hang(ctx)
						}
						return g, err
					})
					ctx, cancel := context.WithCancel(t.Context())
					errs := make(chan error)
					go func() { _, err := c.Mutex("m").LockContext(ctx); errs <- err }()
					if wait == 0 && !lose {
						cancel()
						if err := <-errs; err != nil {
							wantError(t, err, "lock", "m", context.Canceled)
						}
						return
					}
					synctest.Wait()
					assert.Len(t, inspect(t, s, "m").Holders, 1, "granted, and nobody knows")
					start := time.Now()
					cancel()
					wantError(t, <-errs, "lock", "m", context.Canceled)
					assert.Zero(t, time.Since(start))
					time.Sleep(26 * time.Second)
					synctest.Wait()
					wantFree(t, s, "m")
					s.recover()
					require.True(t, c.Mutex("m").TryLock())
				})
			})
		}
	}
}
