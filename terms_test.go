package dlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// How long a hold lasts, and what a lock's own options change about it.

func TestHoldIsRenewedForAsLongAsItIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, &dlock.Options{TTL: time.Second})
		h := mustLock(t, t.Context(), c.Mutex("m"))
		const held = 10 * time.Minute
		for range held / time.Second {
			time.Sleep(time.Second)
			left := inspect(t, s, "m").Holders[0].Remaining
			require.GreaterOrEqual(t, left, 600*time.Millisecond)
		}
		assert.NoError(t, h.Err())
		renewals := s.renews.Load()
		assert.InDelta(t, 3*held/time.Second, renewals, float64(held/time.Second), "at about a third of the validity")
		require.NoError(t, h.Unlock())
		time.Sleep(time.Minute)
		assert.Equal(t, renewals, s.renews.Load(), "and not after that")
	})
}

func TestMaxHoldEndsAHoldExactlyThen(t *testing.T) {
	const limit = 10 * time.Second
	for name, mutex := range map[string]func(*testing.T, store.Store) *dlock.Mutex{
		"of the client": func(t *testing.T, s store.Store) *dlock.Mutex {
			return open(t, s, &dlock.Options{TTL: time.Second, MaxHold: limit}).Mutex("m")
		},
		"of the lock": func(t *testing.T, s store.Store) *dlock.Mutex {
			return open(t, s, &dlock.Options{TTL: time.Second, MaxHold: time.Hour}).Mutex("m", dlock.WithMaxHold(limit))
		},
		"shorter than the lease": func(t *testing.T, s store.Store) *dlock.Mutex {
			return open(t, s, &dlock.Options{TTL: time.Minute}).Mutex("m", dlock.WithMaxHold(limit))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memory.New()
				m := mutex(t, s)
				start := time.Now()
				h := mustLock(t, t.Context(), m)
				nested := mustLock(t, h.Context(t.Context()), m)
				time.Sleep(limit / 2)
				again := mustLock(t, h.Context(t.Context()), m) // re-entry does not prolong it
				<-h.Done()
				assert.Equal(t, limit, time.Since(start))
				synctest.Wait()
				wantFree(t, s, "m") // released, not left to its lease
				for _, h := range []*dlock.Hold{h, nested, again} {
					assert.Equal(t, dlock.ErrLost, h.Err())
					assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
				}
			})
		})
	}
}

func TestMaxHoldOfZeroIsNoCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, memory.New(), &dlock.Options{MaxHold: time.Second})
		h := mustLock(t, t.Context(), c.Mutex("m", dlock.WithMaxHold(0)))
		time.Sleep(time.Hour)
		require.NoError(t, h.Unlock())
	})
}

func TestMaxHoldStopsRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		h := mustLock(t, t.Context(), open(t, s, &dlock.Options{TTL: time.Minute}).Mutex("m", dlock.WithMaxHold(50*time.Second)))
		<-h.Done()
		assert.Zero(t, s.renews.Load(), "the first lease was enough")
		assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
	})
}

func TestWithoutRenewalIsLostWhenTheLeaseRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		m := open(t, s, nil).Mutex("m", dlock.WithTTL(10*time.Second), dlock.WithoutRenewal())
		start := time.Now()
		h := mustLock(t, t.Context(), m)
		<-h.Done()
		assert.Equal(t, 10*time.Second-claimMargin(10*time.Second), time.Since(start))
		assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)

		h = mustLock(t, t.Context(), m)
		time.Sleep(9 * time.Second)
		require.NoError(t, h.Unlock(), "unlocked before")
		assert.Zero(t, s.renews.Load())
	})
}

// A fixed lease that came from the queue is the short one of a promotion. It
// reaches its TTL before Lock returns, and that is all.
func TestWithoutRenewalOfAPromotedHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		first := mustLock(t, t.Context(), open(t, s.Store.(*memory.Store).Peer(), nil).Mutex("m"))
		m := open(t, s, nil).Mutex("m", dlock.WithTTL(20*time.Second), dlock.WithoutRenewal())
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
		assert.Equal(t, 20*time.Second, inspect(t, s, "m").Holders[0].Remaining)
		<-h.Done()
		assert.Equal(t, 20*time.Second-claimMargin(20*time.Second), time.Since(granted))
		assert.Zero(t, s.renews.Load())
		assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
	})
}

// A hold that was promoted has the short lease of a waiter, and is renewed at once.
func TestPromotedHoldIsRenewedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		first := mustLock(t, t.Context(), open(t, s, nil).Mutex("m"))
		m := open(t, s.Peer(), &dlock.Options{TTL: time.Minute, WaitTTL: time.Second}).Mutex("m")
		done := make(chan struct{})
		go func() { m.Lock(); close(done) }()
		synctest.Wait()
		require.NoError(t, first.Unlock())
		<-done
		synctest.Wait()
		assert.Equal(t, time.Minute, inspect(t, s, "m").Holders[0].Remaining)
		time.Sleep(time.Hour)
		m.Unlock()
	})
}

// Unless it is renewed, its claim is as short as its lease.
func TestPromotedHoldThatIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		first := mustLock(t, t.Context(), open(t, s.Store.(*memory.Store).Peer(), nil).Mutex("m"))
		m := open(t, s, &dlock.Options{TTL: time.Minute, WaitTTL: 2 * time.Second}).Mutex("m")
		holds := make(chan *dlock.Hold)
		asked := time.Now() // and again after each third of WaitTTL
		go func() { h, _ := m.LockContext(t.Context()); holds <- h }()
		time.Sleep(500 * time.Millisecond)
		s.cutRenewals(refuseConnection)
		require.NoError(t, first.Unlock())
		h := <-holds
		<-h.Done()
		assert.Equal(t, 2*time.Second-claimMargin(2*time.Second), time.Since(asked))
		s.recover()
		assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
	})
}

func TestLeaseOfALockOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		var last atomic.Int64 // TTL of the last renewal
		s.onRenew(func(ctx context.Context, refs []store.Ref) []error {
			last.Store(int64(refs[0].TTL))
			return s.Store.Renew(ctx, refs)
		})
		c := open(t, s, &dlock.Options{WaitTTL: time.Minute})
		h := mustLock(t, t.Context(), c.Mutex("m", dlock.WithTTL(2*time.Second)))
		time.Sleep(time.Minute)
		assert.Equal(t, 2*time.Second, time.Duration(last.Load()), "of this lock, and not the longer WaitTTL")
		assert.NoError(t, h.Err())
		require.NoError(t, h.Unlock())
	})
}
