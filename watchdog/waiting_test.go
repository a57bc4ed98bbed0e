package watchdog

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A lease that is disarmed or armed again while it waits for a call is not sent by its former terms. It is renewed by
// its new ones.
func TestLeaseThatChangesWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const validity = 30 * time.Second
		r := newFixture(t, Config{MaxBatch: 1}, nil)
		defer r.w.Close()
		free := r.holdReplies(Renewed)
		defer free()
		leases := make([]Lease, (maxCalls+3)*shardCount)
		for i := range leases {
			r.keep(&leases[i], validity)
		}
		pass(11 * time.Second)
		sent := maxCalls * shardCount
		require.Equal(t, sent, r.callCount())
		var waiting []*Lease
		for i := range leases {
			if len(r.renewals(&leases[i])) == 0 {
				waiting = append(waiting, &leases[i])
			}
		}
		require.Len(t, waiting, 3*shardCount)
		for i, l := range waiting {
			switch i % 3 {
			case 0:
				require.True(t, l.Disarm())
			case 1:
				r.w.Keep(l, Terms{Deadline: time.Now().Add(time.Hour)})
			case 2:
				r.keep(l, validity)
			}
		}
		free()
		synctest.Wait()
		require.Equal(t, sent, r.callCount(), "sent by former terms")
		pass(time.Minute)
		require.Empty(t, r.lost())
		for i, l := range waiting {
			require.Equal(t, i%3 == 2, len(r.renewals(l)) > 0)
		}
	})
}

// There is one goroutine for each batch that waits, and none without a batch.
func TestGoroutinesForBatches(t *testing.T) {
	r := newFixture(t, Config{MaxBatch: 2}, nil)
	defer r.w.Close()
	sh := &r.w.shards[0]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for leases, calls := range []int{0, 1, 1, 2, 2} {
		q := &sh.due[leases]
		for range leases {
			q.waiting = append(q.waiting, new(Lease))
		}
		sh.startCalls()
		require.Equal(t, calls, q.calls, "%d leases", leases)
		q.waiting = nil // what is started finds none
	}
}

// A confirmation at the moment of the deadline revives nothing, also if it comes before the timer.
func TestConfirmationAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		free := r.holdReplies(Renewed)
		defer free()
		var l Lease
		deadline := time.Now().Add(3 * time.Second)
		r.keep(&l, 3*time.Second)
		pass(2 * time.Second)
		require.Equal(t, 1, r.callCount())
		sh := l.home.Load()
		sh.mu.Lock()
		sh.timer.Stop()
		sh.mu.Unlock()
		pass(time.Until(deadline))
		require.False(t, l.Valid())
		free()
		synctest.Wait()
		require.False(t, l.Valid())
		require.True(t, l.Deadline().Equal(deadline))
	})
}

// A lease is armed again while its renewal is under way. When that ends, the next one is sent when it is due, not at
// once.
func TestRenewalAfterAnEarlierOneIsNotEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		free := r.holdReplies(Renewed)
		defer free()
		var l Lease
		r.keep(&l, 3*time.Second)
		pass(2 * time.Second)
		r.keep(&l, 3*time.Second)
		require.Equal(t, 1, r.callCount())
		free()
		pass(900 * time.Millisecond)
		require.Equal(t, 1, r.callCount(), "sent before it was due")
		pass(200 * time.Millisecond)
		require.Equal(t, 2, r.callCount())
		require.True(t, l.Disarm())
	})
}

// An entry of the wheel that an earlier one has replaced is not taken for a fault of the wheel when it fires.
func TestReplacedEntryIsNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wheels := &fakeWheels{}
		r := newFixture(t, Config{}, wheels.make)
		defer r.w.Close()
		var leases [shardCount + 1]Lease // the first and the last are in one shard
		r.keep(&leases[0], 6*time.Second)
		sh := leases[0].home.Load()
		entry := func() int64 {
			sh.mu.Lock()
			defer sh.mu.Unlock()
			return sh.wheelAt
		}
		replaced := entry()
		for i := range leases[1:] {
			r.keep(&leases[1+i], 3*time.Second)
		}
		require.Same(t, sh, leases[shardCount].home.Load())
		require.Less(t, entry(), replaced)
		require.NotZero(t, entry())
		before := entry()
		sh.look(replaced)
		require.Equal(t, before, entry())
		pass(20 * time.Second)
		made, _ := wheels.counts()
		require.Equal(t, 1, made)
		require.Empty(t, r.lost())
	})
}
