package watchdog

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestScheduleArithmetic(t *testing.T) {
	require.NotEqual(t, classOf(int64(time.Second)), classOf(int64(30*time.Second)))
	for range 10_000 {
		now := rand.Int64N(1 << 60)
		wait := rand.Int64N(1 << rand.IntN(60))
		at := quantize(now, now+wait)
		require.LessOrEqual(t, at, now+wait)
		require.GreaterOrEqual(t, at, now+wait-max(wait/16, int64(tick)))
		if wait > 0 {
			require.Greater(t, at, now, "a wait is never rounded to nothing")
		}
		validity := rand.Int64N(1 << 50)
		remaining := rand.Int64N(1 << 50)
		require.LessOrEqual(t, firstWait(remaining, validity), max(remaining, 0))
		require.Positive(t, retryWait(remaining, validity))
	}
	require.Equal(t, int64(10), firstWait(30, 30))
	require.Equal(t, int64(0), firstWait(-30, 30))
}

func TestAgenda(t *testing.T) {
	var h agenda
	leases := make([]Lease, 100)
	check := func() {
		for i, e := range h {
			require.Equal(t, i+1, e.l.pos)
			if i > 0 {
				require.LessOrEqual(t, h[(i-1)/2].at, e.at)
			}
		}
	}
	for range 5_000 {
		l := &leases[rand.IntN(len(leases))]
		if rand.IntN(3) == 0 {
			h.remove(l)
			require.Zero(t, l.pos)
		} else {
			h.set(l, rand.Int64N(1000))
			require.NotZero(t, l.pos)
		}
		if rand.IntN(50) == 0 {
			check()
		}
	}
	last := int64(-1)
	for len(h) > 0 {
		require.GreaterOrEqual(t, h[0].at, last)
		last = h[0].at
		h.remove(h[0].l)
		check()
	}
}

func TestRenewedAtAThird(t *testing.T) {
	for _, validity := range []time.Duration{
		60 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second, 30 * time.Second, time.Hour,
	} {
		t.Run(validity.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, Config{}, nil)
				defer r.w.Close()
				var l Lease
				start := time.Now()
				r.keep(&l, validity)
				pass(20 * validity)
				require.True(t, l.Valid())
				require.Empty(t, r.lost())
				// A third, less what a lease may be early to share a batch.
				earliest := validity/3*15/16 - time.Duration(earliness)
				sent := r.renewals(&l)
				require.GreaterOrEqual(t, len(sent), 58)
				for i, at := range sent {
					wait := at.Sub(start)
					require.GreaterOrEqual(t, wait, earliest, "renewal %d", i)
					require.LessOrEqual(t, wait, validity/3+time.Duration(earliness), "renewal %d", i)
					start = at
				}
				require.True(t, l.Deadline().Equal(start.Add(validity)), "counted from the sending")
				require.True(t, l.Disarm())
				n := r.callCount()
				pass(validity)
				require.Equal(t, n, r.callCount())
			})
		})
	}
}

// The first renewal is due when a third of the remaining time has passed, and not
// before it can move the deadline by a third of the validity.
func TestFirstRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		var near, short, long Lease
		start := time.Now()
		r.w.Keep(&near, Terms{Deadline: start.Add(5 * time.Second), Validity: 30 * time.Second})
		r.w.Keep(&short, Terms{Deadline: start.Add(6 * time.Second), Validity: 30 * time.Second})
		r.w.Keep(&long, Terms{Deadline: start.Add(100 * time.Second), Validity: 30 * time.Second})
		pass(1500 * time.Millisecond)
		require.Empty(t, r.renewals(&near), "renewed too early")
		pass(200 * time.Millisecond)
		require.Len(t, r.renewals(&near), 1)
		sent := r.renewals(&near)[0]
		require.InDelta(t, 5.0/3, sent.Sub(start).Seconds(), 0.1)
		require.True(t, near.Deadline().Equal(sent.Add(30*time.Second)))
		pass(100 * time.Second)
		require.Empty(t, r.lost())
		require.InDelta(t, 2.0, r.renewals(&short)[0].Sub(start).Seconds(), 0.15)
		require.InDelta(t, 80.0, r.renewals(&long)[0].Sub(start).Seconds(), 5.1)
		require.InDelta(t, 10, len(r.renewals(&near)), 1.1)
	})
}

func TestRetriesComeFasterUntilTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const validity = 30 * time.Second
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		r.setReply(always(Unknown))
		var l Lease
		deadline := time.Now().Add(validity)
		r.keep(&l, validity)
		pass(2 * validity)
		require.Equal(t, []lossSeen{{&l, DeadlinePassed, deadline}}, r.lost())
		sent := r.renewals(&l)
		require.GreaterOrEqual(t, len(sent), 8)
		require.LessOrEqual(t, len(sent), 25)
		for i := 2; i < len(sent); i++ {
			before, after := sent[i-1].Sub(sent[i-2]), sent[i].Sub(sent[i-1])
			require.LessOrEqual(t, after, before*17/16+time.Duration(earliness), "retry %d", i)
			require.GreaterOrEqual(t, after, validity/64*15/16-time.Duration(earliness), "retry %d", i)
		}
		require.Less(t, deadline.Sub(sent[len(sent)-1]), validity/32, "tried until the end")
	})
}

// A store that fails at once gets few calls, however short the lease.
func TestFailuresAreNotAHotLoop(t *testing.T) {
	for _, validity := range []time.Duration{time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Config{}, nil)
			defer r.w.Close()
			r.setReply(always(Unknown))
			var l Lease
			r.w.Keep(&l, Terms{Deadline: time.Now().Add(validity), Validity: validity})
			pass(validity)
			require.Len(t, r.lost(), 1)
			require.LessOrEqual(t, r.callCount(), 40, "%v", validity)
		})
	}
}
