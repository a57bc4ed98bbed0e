package leases

import (
	"context"
	"log/slog"
	"runtime"
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

// A loss has a cause. Hold.Err, the cause of the hold's contexts, Unlock and the log tell it, and
// all errors match ErrLost.
func TestLossHasACause(t *testing.T) {
	for name, tc := range map[string]struct {
		opts  []dlock.LockOption
		lose  func(*memory.Store, *coretest.Spy)
		cause string
	}{
		"deadline": {
			lose:  func(_ *memory.Store, s *coretest.Spy) { s.GoDown() },
			cause: "deadline passed without a confirmed renewal",
		},
		"store": {
			lose:  func(m *memory.Store, _ *coretest.Spy) { _, _ = m.Break(context.Background(), "m") },
			cause: "the store says it is gone",
		},
		"MaxHold": {
			opts:  []dlock.LockOption{dlock.WithMaxHold(10 * time.Second)},
			lose:  func(*memory.Store, *coretest.Spy) {},
			cause: "MaxHold reached",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := memory.New()
				s := coretest.NewSpy(m.Peer())
				h := coretest.MustLock(t, t.Context(), coretest.Open(t, s, nil).Mutex("m", tc.opts...))
				ctx := h.Context(t.Context())
				tc.lose(m, s)
				<-h.Done()
				synctest.Wait() // the context is cancelled after Done is closed
				unlocked := h.Unlock()
				for what, err := range map[string]error{"Err": h.Err(), "context": context.Cause(ctx), "Unlock": unlocked} {
					require.ErrorIs(t, err, dlock.ErrLost, what)
					assert.ErrorContains(t, err, tc.cause, what)
				}
				s.Recover()
				time.Sleep(time.Second)
			})
		})
	}
}

// sleepyContext is a context whose Done takes two leases. A call that is about to wait stands still
// for as long, as in a process that is stopped just then.
type sleepyContext struct{ context.Context }

func (c sleepyContext) Done() <-chan struct{} {
	time.Sleep(2 * ttl)
	return c.Context.Done()
}

// A lock is passed on to a waiting call, and its lease ends before the call can return. The caller
// gets an error and never had the lock, so OnLost does not report it.
func TestGrantThatNeverReachedItsCallerIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost coretest.Losses
		s := coretest.NewSpy(memory.New())
		m := coretest.Open(t, s, &dlock.Options{OnLost: lost.Add}).Mutex("m")
		before := coretest.MustLock(t, t.Context(), m)
		first := make(chan *dlock.Hold, 1)
		go func() { first <- coretest.MustLock(t, t.Context(), m) }()
		synctest.Wait()
		failed := make(chan error, 1)
		go func() {
			_, err := m.LockContext(sleepyContext{t.Context()})
			failed <- err
		}()
		synctest.Wait()
		require.NoError(t, before.Unlock())
		h := <-first
		require.NoError(t, h.Unlock()) // passes the lock on
		s.GoDown()
		err := <-failed
		synctest.Wait()
		assert.ErrorIs(t, err, dlock.ErrLost)
		assert.Empty(t, lost.All(), "OnLost reported a lock that was never held")
		s.Recover()
		time.Sleep(time.Hour)
	})
}

// The store says that a hold is gone, and at that moment other goroutines look at it. All of them
// get the store's answer as the cause, and the log does too.
func TestLossReportedByTheStoreIsNoPassedDeadline(t *testing.T) {
	for range 1_000 {
		synctest.Test(t, func(t *testing.T) {
			logs := &coretest.Logs{}
			s := coretest.NewSpy(memory.New())
			c := coretest.Open(t, s, &dlock.Options{Logger: slog.New(logs)})
			h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
			var looking sync.WaitGroup
			s.OnRenew(func(_ context.Context, refs []store.Ref) []error {
				for range 4 {
					looking.Go(func() {
						for h.Err() == nil {
							runtime.Gosched()
						}
					})
				}
				runtime.Gosched()
				errs := make([]error, len(refs))
				for i := range errs {
					errs[i] = store.ErrLost
				}
				return errs
			})
			<-h.Done()
			looking.Wait()
			synctest.Wait()
			records := logs.Of(slog.LevelWarn, "lost")
			require.Len(t, records, 1)
			assert.NotContains(t, records[0].Attrs["cause"].String(), "deadline")
			assert.ErrorContains(t, h.Err(), "the store says it is gone")
			_ = h.Unlock()
		})
		if t.Failed() {
			return
		}
	}
}
