package handover

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// handing returns the hold of a first call and one channel for each call that waits behind it. The
// hold comes from the store, with tokens for local hand-overs.
func handing(t *testing.T, c *dlock.Client, others ...context.Context) (first *dlock.Hold, got []chan *dlock.Hold) {
	t.Helper()
	m := c.Mutex("m")
	before := coretest.MustLock(t, t.Context(), m)
	for _, ctx := range append([]context.Context{t.Context()}, others...) {
		ch := make(chan *dlock.Hold, 1)
		got = append(got, ch)
		go func() {
			h, err := m.LockContext(ctx)
			if err != nil {
				t.Log(err)
				close(ch)
				return
			}
			ch <- h
		}()
		synctest.Wait()
	}
	require.NoError(t, before.Unlock())
	synctest.Wait()
	return <-got[0], got[1:]
}

// A call that is cancelled at the moment of its grant passes the lock on.
func TestLocalHandoverToACancelledCall(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			ctx, cancel := context.WithCancel(t.Context())
			first, got := handing(t, coretest.Open(t, s, nil), ctx, ctx, t.Context())
			go cancel()
			go func() { assert.NoError(t, first.Unlock()) }()
			for _, ch := range got[:2] {
				if h, ok := <-ch; ok {
					require.NoError(t, h.Unlock())
				}
			}
			last := <-got[2]
			require.NotNil(t, last)
			require.NoError(t, last.Unlock())
			synctest.Wait()
			coretest.WantFree(t, s, "m")
		})
	}
}

// The same for a call behind the place keeper, where it is certain to happen: with one processor
// no goroutine runs between the cancel and the hand-over.
func TestLocalHandoverToACallCancelledBefore(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			ctx, cancel := context.WithCancel(t.Context())
			first, got := handing(t, coretest.Open(t, s, nil), t.Context(), ctx, t.Context())
			require.NoError(t, first.Unlock())
			second := <-got[0]
			synctest.Wait()
			cancel()
			require.NoError(t, second.Unlock())
			if h, ok := <-got[1]; ok {
				require.NoError(t, h.Unlock())
			}
			require.NoError(t, (<-got[2]).Unlock())
			synctest.Wait()
			coretest.WantFree(t, s, "m")
		})
	}
}

// The loss of a lease that was passed on is reported for its present holder.
func TestLocalHandoverLosesWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		var lost coretest.Losses
		first, got := handing(t, coretest.Open(t, s, &dlock.Options{OnLost: lost.Add}), t.Context(), t.Context())
		require.NoError(t, first.Unlock())
		second := <-got[0]
		time.Sleep(waitTTL) // the pushed grant is renewed meanwhile
		s.CutRenewals(coretest.Refuse)
		<-second.Done()
		synctest.Wait()
		assert.ErrorIs(t, second.Err(), dlock.ErrLost)
		assert.Equal(t, []*dlock.Hold{second}, lost.All())
		s.Recover()
		third := <-got[1]
		assert.Greater(t, third.Token(), second.Token())
		require.NoError(t, third.Unlock())
		assert.ErrorIs(t, second.Unlock(), dlock.ErrLost)
	})
}

// Close ends the holder and all waiters, those that have no place at the store of their own too.
func TestLocalHandoverAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		first, got := handing(t, c, t.Context(), t.Context(), t.Context())
		require.NoError(t, first.Unlock())
		second := <-got[0]
		require.NoError(t, c.Close())
		assert.ErrorIs(t, second.Err(), dlock.ErrClosed)
		for _, ch := range got[1:] {
			_, ok := <-ch
			assert.False(t, ok)
		}
		coretest.WantFree(t, s, "m")
	})
}

// An outage of the store ends the wait of a call that has no place of its own.
func TestLocalHandoverReportsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		first, got := handing(t, c, t.Context(), t.Context())
		require.NoError(t, first.Unlock())
		second := <-got[0]
		s.GoDown()
		began := time.Now()
		late := make(chan time.Duration)
		time.AfterFunc(ttl*2/3, func() {
			_, err := c.Mutex("m").LockContext(t.Context())
			assert.ErrorIs(t, err, dlock.ErrUnavailable)
			late <- time.Since(began)
		})
		_, ok := <-got[1]
		assert.False(t, ok)
		assert.InDelta(t, ttl, time.Since(began), float64(waitTTL))
		assert.InDelta(t, 2*ttl, <-late, float64(waitTTL), "it comes to the front when the other call fails, and then sends its own request")
		s.Recover()
		_ = second.Unlock()
	})
}
