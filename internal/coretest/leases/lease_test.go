package leases

import (
	"context"
	"sync/atomic"
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

// How long a hold lasts, and what a lock's own options change about it.

func TestHoldIsRenewedForAsLongAsItIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{TTL: time.Second})
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		const held = 10 * time.Minute
		for range held / time.Second {
			time.Sleep(time.Second)
			left := coretest.Inspect(t, s, "m").Holders[0].Remaining
			require.GreaterOrEqual(t, left, 600*time.Millisecond)
		}
		assert.NoError(t, h.Err())
		renewals := s.Renews.Load()
		assert.InDelta(t, 3*held/time.Second, renewals, float64(held/time.Second), "at about a third of the validity")
		require.NoError(t, h.Unlock())
		time.Sleep(time.Minute)
		assert.Equal(t, renewals, s.Renews.Load(), "renewed after Unlock")
	})
}

// A renewal of a long lease has the time that the lease gives it, also where the
// client's own TTL is short.
func TestRenewalHasTheTimeOfItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		s.OnRenew(func(ctx context.Context, holds []store.Ref) []error {
			select {
			case <-time.After(150 * time.Millisecond):
				return s.Store.Renew(ctx, holds)
			case <-ctx.Done():
				return []error{ctx.Err()}
			}
		})
		c := coretest.Open(t, s, &dlock.Options{TTL: 300 * time.Millisecond})
		h := coretest.MustLock(t, t.Context(), c.Mutex("m", dlock.WithTTL(30*time.Second)))
		time.Sleep(5 * time.Minute)
		assert.NoError(t, h.Err())
		require.NoError(t, h.Unlock())
	})
}

func TestWithoutRenewalIsLostWhenTheLeaseRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		m := coretest.Open(t, s, nil).Mutex("m", dlock.WithTTL(10*time.Second), dlock.WithoutRenewal())
		start := time.Now()
		h := coretest.MustLock(t, t.Context(), m)
		<-h.Done()
		assert.Equal(t, 10*time.Second-coretest.Margin(10*time.Second), time.Since(start))
		assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)

		h = coretest.MustLock(t, t.Context(), m)
		time.Sleep(9 * time.Second)
		require.NoError(t, h.Unlock(), "unlocked before the lease ended")
		assert.Zero(t, s.Renews.Load())
	})
}

// A fixed lease that comes from the queue is the short one of a promotion. It reaches its TTL
// before Lock returns, and is not renewed after that.
func TestWithoutRenewalOfAPromotedHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		first := coretest.MustLock(t, t.Context(), coretest.Open(t, s.Store.(*memory.Store).Peer(), nil).Mutex("m"))
		m := coretest.Open(t, s, nil).Mutex("m", dlock.WithTTL(20*time.Second), dlock.WithoutRenewal())
		var granted time.Time
		done := make(chan *dlock.Hold)
		go func() {
			h, err := m.LockContext(t.Context())
			assert.NoError(t, err)
			granted = time.Now()
			done <- h
		}()
		time.Sleep(time.Second)
		released := time.Now()
		require.NoError(t, first.Unlock())
		h := <-done
		assert.Equal(t, released, granted)
		assert.Equal(t, 20*time.Second, coretest.Inspect(t, s, "m").Holders[0].Remaining)
		<-h.Done()
		assert.Equal(t, 20*time.Second-coretest.Margin(20*time.Second), time.Since(granted))
		assert.Zero(t, s.Renews.Load())
		assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
	})
}

// A promoted hold has the short lease of a waiter. It is renewed when a third of that time has
// passed, or before.
func TestPromotedHoldIsRenewedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		first := coretest.MustLock(t, t.Context(), coretest.Open(t, s, nil).Mutex("m"))
		m := coretest.Open(t, s.Peer(), &dlock.Options{TTL: time.Minute, WaitTTL: time.Second}).Mutex("m")
		done := make(chan struct{})
		go func() { m.Lock(); close(done) }()
		synctest.Wait()
		require.NoError(t, first.Unlock())
		<-done
		const third = time.Second / 3
		time.Sleep(third)
		synctest.Wait()
		assert.GreaterOrEqual(t, coretest.Inspect(t, s, "m").Holders[0].Remaining, time.Minute-third)
		time.Sleep(time.Hour)
		m.Unlock()
	})
}

// A promoted hold that cannot be renewed is valid for one WaitTTL less the margin.
func TestPromotedHoldThatIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		first := coretest.MustLock(t, t.Context(), coretest.Open(t, s.Store.(*memory.Store).Peer(), nil).Mutex("m"))
		m := coretest.Open(t, s, &dlock.Options{TTL: time.Minute, WaitTTL: 2 * time.Second}).Mutex("m")
		holds := make(chan *dlock.Hold)
		asked := time.Now() // the next requests follow after each third of WaitTTL
		go func() { h, _ := m.LockContext(t.Context()); holds <- h }()
		time.Sleep(500 * time.Millisecond)
		s.CutRenewals(coretest.Refuse)
		require.NoError(t, first.Unlock())
		h := <-holds
		<-h.Done()
		assert.Equal(t, 2*time.Second-coretest.Margin(2*time.Second), time.Since(asked))
		s.Recover()
		assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
	})
}

func TestRenewalAsksForTheLocksOwnTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		var last atomic.Int64 // the TTL in the last renewal
		s.OnRenew(func(ctx context.Context, refs []store.Ref) []error {
			last.Store(int64(refs[0].TTL))
			return s.Store.Renew(ctx, refs)
		})
		c := coretest.Open(t, s, &dlock.Options{WaitTTL: time.Minute})
		h := coretest.MustLock(t, t.Context(), c.Mutex("m", dlock.WithTTL(2*time.Second)))
		time.Sleep(time.Minute)
		assert.Equal(t, 2*time.Second, time.Duration(last.Load()), "the lock's TTL, not the longer WaitTTL")
		assert.NoError(t, h.Err())
		require.NoError(t, h.Unlock())
	})
}

// A store answers a renewal with fewer results than holds: the others were not renewed. Results beyond the
// holds say nothing.
func TestRenewalWithAWrongNumberOfResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		m := coretest.Open(t, s, nil).Mutex("m")
		s.OnRenew(func(context.Context, []store.Ref) []error { return nil })
		start := time.Now()
		h := coretest.MustLock(t, t.Context(), m)
		<-h.Done()
		assert.Equal(t, coretest.Validity(ttl), time.Since(start))
		assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)

		s.OnRenew(func(ctx context.Context, refs []store.Ref) []error {
			return append(s.Store.Renew(ctx, refs), store.ErrLost)
		})
		h = coretest.MustLock(t, t.Context(), m)
		time.Sleep(4 * ttl)
		assert.NoError(t, h.Unlock())
	})
}
