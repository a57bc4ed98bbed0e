package watchdog

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

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

// The deadline counts from the moment before the call, not from the reply.
func TestDeadlineCountsFromTheSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		r.setReply(func(_ context.Context, batch []*Lease) []Outcome {
			time.Sleep(time.Second)
			return always(Renewed)(nil, batch)
		})
		var l Lease
		r.keep(&l, 30*time.Second)
		pass(12 * time.Second)
		sent := r.renewals(&l)
		require.Len(t, sent, 1)
		require.True(t, l.Deadline().Equal(sent[0].Add(30*time.Second)))
		r.setReply(silent)
		pass(time.Minute)
		require.Equal(t, []lossSeen{{&l, DeadlinePassed, sent[0].Add(30 * time.Second)}}, r.lost())
	})
}

func TestToldLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		var gone, stays Lease
		r.setReply(func(_ context.Context, batch []*Lease) []Outcome {
			out := always(Renewed)(nil, batch)
			for i, l := range batch {
				if l == &gone {
					out[i] = Lost
				}
			}
			return out
		})
		r.keep(&gone, 3*time.Second)
		r.keep(&stays, 3*time.Second)
		pass(time.Minute)
		sent := r.renewals(&gone)
		require.Len(t, sent, 1)
		require.Equal(t, []lossSeen{{&gone, ToldLost, sent[0]}}, r.lost())
		require.False(t, gone.Valid() || gone.Disarm())
		require.True(t, stays.Disarm())
		require.Equal(t, "told lost", r.lost()[0].cause.String())
		require.Equal(t, "deadline passed", DeadlinePassed.String())
	})
}

// Leases beyond the end of a short result are unknown. Too many outcomes, and
// values that are no Outcome, change nothing.
func TestShortResultIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		leases := make([]Lease, 3*shardCount) // three in each shard
		r.setReply(func(_ context.Context, batch []*Lease) []Outcome { return []Outcome{Renewed} })
		for i := range leases {
			r.keep(&leases[i], 3*time.Second)
		}
		pass(3 * time.Second)
		require.Empty(t, r.lost(), "one lease of each batch was renewed, and the retries were in another order each time")
		r.setReply(func(context.Context, []*Lease) []Outcome { return []Outcome{9, 9, 9, 9, 9} })
		pass(4 * time.Second)
		require.Len(t, r.lost(), len(leases))
	})
}

func TestFault66OneOfThreeRenewalsIsEnough(t *testing.T) {
	for _, validity := range []time.Duration{200 * time.Millisecond, 3 * time.Second, 30 * time.Second} {
		for name, failure := range map[string]func(context.Context, []*Lease) []Outcome{
			"error": always(Unknown), "silence": silent,
		} {
			t.Run(validity.String()+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newFixture(t, Config{}, nil)
					defer r.w.Close()
					n := 0
					var mu sync.Mutex
					r.setReply(func(ctx context.Context, batch []*Lease) []Outcome {
						mu.Lock()
						n++
						fail := n%3 != 0
						mu.Unlock()
						if fail {
							return failure(ctx, batch)
						}
						return always(Renewed)(ctx, batch)
					})
					var l Lease
					r.keep(&l, validity)
					pass(50 * validity)
					require.True(t, l.Valid())
					require.Empty(t, r.lost())
				})
			})
		}
	}
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

func TestFault67ConfirmationAfterTheDeadlineRevivesNothing(t *testing.T) {
	for _, late := range []time.Duration{0, 1, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Config{}, nil)
			defer r.w.Close()
			var l Lease
			deadline := time.Now().Add(3 * time.Second)
			r.setReply(func(_ context.Context, batch []*Lease) []Outcome {
				time.Sleep(time.Until(deadline) + late) // ignores its context
				return always(Renewed)(nil, batch)
			})
			r.keep(&l, 3*time.Second)
			pass(time.Until(deadline))
			require.False(t, l.Valid())
			pass(time.Minute)
			require.False(t, l.Valid() || l.Disarm())
			require.Equal(t, []lossSeen{{&l, DeadlinePassed, deadline}}, r.lost())
			require.Len(t, r.renewals(&l), 1)
		})
	}
}

// As above, but the timer is stopped, so that it cannot hide an outcome that is
// entered after the deadline.
func TestFault67WithoutTheTimer(t *testing.T) {
	for _, late := range []Outcome{Renewed, Lost, Unknown} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Config{}, nil)
			defer r.w.Close()
			release := make(chan struct{})
			free := sync.OnceFunc(func() { close(release) })
			defer free()
			r.setReply(func(_ context.Context, batch []*Lease) []Outcome {
				<-release
				return always(late)(nil, batch)
			})
			var l Lease
			deadline := time.Now().Add(3 * time.Second)
			r.keep(&l, 3*time.Second)
			pass(2 * time.Second)
			require.Equal(t, 1, r.callCount())
			sh := l.home.Load()
			sh.mu.Lock()
			sh.timer.Stop()
			sh.mu.Unlock()
			pass(2 * time.Second)
			cause, lost := l.Cause()
			require.True(t, lost)
			require.Equal(t, DeadlinePassed, cause)
			free()
			synctest.Wait()
			require.False(t, l.Valid())
			require.True(t, l.Deadline().Equal(deadline))
			require.False(t, l.Disarm())
			require.Empty(t, r.lost())
			sh.onTimer()
			synctest.Wait()
			require.Equal(t, []lossSeen{{&l, DeadlinePassed, time.Now()}}, r.lost(), "not the cause that the caller saw")
		})
	}
}

func TestLastCapsRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		var l, short Lease
		start := time.Now()
		last := start.Add(65 * time.Second)
		r.w.Keep(&l, Terms{Deadline: start.Add(30 * time.Second), Validity: 30 * time.Second, Last: last})
		// Nothing to gain from the start.
		r.w.Keep(&short, Terms{Deadline: start.Add(30 * time.Second), Validity: 30 * time.Second, Last: start.Add(10 * time.Second)})
		require.True(t, short.Deadline().Equal(start.Add(10*time.Second)))
		pass(2 * time.Minute)
		require.Equal(t, []lossSeen{
			{&short, CapReached, start.Add(10 * time.Second)},
			{&l, CapReached, last},
		}, r.lost())
		require.Empty(t, r.renewals(&short))
		sent := r.renewals(&l)
		final := sent[len(sent)-1].Sub(start)
		require.GreaterOrEqual(t, final, 35*time.Second, "the cap was reached by then")
		require.Less(t, final, 46*time.Second, "and nothing was sent after")
	})
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

// A renewal that is sent a little early cannot move a far deadline back.
func TestDeadlineNeverMovesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const validity = 30 * time.Second
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		var l Lease
		deadline := time.Now().Add(1000 * time.Second)
		r.w.Keep(&l, Terms{Deadline: deadline, Validity: validity})
		for r.callCount() == 0 {
			pass(time.Second)
		}
		require.True(t, r.renewals(&l)[0].Add(validity).Before(deadline), "the renewal is too late for this test")
		require.True(t, l.Deadline().Equal(deadline))
		pass(200 * time.Second)
		require.True(t, l.Disarm())
	})
}

func TestNeverRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wheels := &fakeWheels{}
		r := newFixture(t, Config{}, wheels.make)
		defer r.w.Close()
		var a, b, far Lease
		start := time.Now()
		r.w.Keep(&a, Terms{Deadline: start.Add(time.Second)})
		r.w.Keep(&b, Terms{Deadline: start.Add(time.Hour), Validity: -1})
		r.w.Keep(&far, Terms{Deadline: start.Add(math.MaxInt64), Validity: math.MaxInt64})
		pass(2 * time.Hour)
		require.Equal(t, []lossSeen{
			{&a, DeadlinePassed, start.Add(time.Second)},
			{&b, DeadlinePassed, start.Add(time.Hour)},
		}, r.lost())
		require.Zero(t, r.callCount())
		require.True(t, far.Disarm())
	})
}

// A call is bounded by Timeout, by a quarter of the validity, and by the
// deadline, whichever comes first.
func TestTimeoutOfACall(t *testing.T) {
	const remaining = 0
	for _, c := range []struct{ timeout, validity, remains, want time.Duration }{
		{0, 400 * time.Second, 400 * time.Second, DefaultTimeout},
		{0, 8 * time.Second, 8 * time.Second, 2 * time.Second},
		{time.Second, 8 * time.Second, 8 * time.Second, time.Second},
		{0, 40 * time.Second, time.Second, remaining},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Config{Timeout: c.timeout}, nil)
			defer r.w.Close()
			var got time.Duration
			want := c.want
			deadline := time.Now().Add(c.remains)
			r.setReply(func(ctx context.Context, batch []*Lease) []Outcome {
				if want == remaining {
					want = time.Until(deadline)
				}
				d, _ := ctx.Deadline()
				got = time.Until(d)
				return always(Lost)(ctx, batch)
			})
			var l Lease
			r.w.Keep(&l, Terms{Deadline: deadline, Validity: c.validity})
			pass(c.remains / 2)
			require.Positive(t, got)
			require.Equal(t, want, got)
		})
	}
}

func TestManyLeasesAreCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const leases, validity = 100_000, 30 * time.Second
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		var calls, renewed int
		var mu sync.Mutex
		r.w.renew = func(_ context.Context, batch []*Lease) []Outcome {
			mu.Lock()
			defer mu.Unlock()
			calls++
			renewed += len(batch)
			return always(Renewed)(nil, batch)
		}
		all := make([]Lease, leases)
		for i := range all {
			r.keep(&all[i], validity)
			if i%(leases/100) == 0 {
				time.Sleep(validity / 300) // a third of the validity in all
			}
		}
		pass(validity)
		require.LessOrEqual(t, len(ownGoroutines()), 3, "goroutines at rest")
		mu.Lock()
		calls, renewed = 0, 0
		mu.Unlock()
		pass(3 * validity)
		require.Empty(t, r.lost())
		mu.Lock()
		require.InDelta(t, 9.3*leases, renewed, 0.6*leases)
		ideal := renewed / DefaultMaxBatch
		require.Less(t, calls, ideal*3/2, "ideal is %d", ideal)
		mu.Unlock()
		for i := range all {
			if !all[i].Disarm() {
				t.Fatal("lost")
			}
		}
		r.w.Close()
		synctest.Wait()
		require.Empty(t, ownGoroutines())
	})
}

// Leases of one shard that were armed together are renewed in full batches.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{MaxBatch: 10}, nil)
		defer r.w.Close()
		all := make([]Lease, 25*shardCount)
		for i := range all {
			r.keep(&all[i], 30*time.Second)
		}
		pass(11 * time.Second)
		require.Equal(t, 3*shardCount, r.callCount())
		for _, c := range r.calls {
			require.LessOrEqual(t, len(c.batch), 10)
		}
	})
}

// Leases that were armed at different times share batches: ten thousand leases of
// 10 s, armed within three seconds, are renewed a hundred at a time.
func TestBatchesOfLeasesThatBeganApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		all := make([]Lease, 10000)
		for i := range all {
			r.keep(&all[i], 10*time.Second)
			if i%100 == 0 {
				time.Sleep(30 * time.Millisecond)
			}
		}
		pass(10 * time.Second)
		before := r.callCount()
		pass(20 * time.Second)
		renewals := 0
		for _, c := range r.calls[before:] {
			renewals += len(c.batch)
		}
		require.GreaterOrEqual(t, renewals, 5*len(all))
		require.GreaterOrEqual(t, renewals/(r.callCount()-before), 100)
	})
}

// At most maxCalls calls are under way for one class of one shard, and the leases
// that become due meanwhile share the next call.
func TestCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{MaxBatch: 100}, nil)
		defer r.w.Close()
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		defer free()
		r.setReply(func(_ context.Context, batch []*Lease) []Outcome {
			<-release
			return always(Renewed)(nil, batch)
		})
		all := make([]Lease, 50*shardCount)
		start := time.Now()
		for i := range all {
			// Due at 50 moments between 3 s and 5 s.
			remaining := 9*time.Second + time.Duration(i)*30*time.Millisecond
			r.w.Keep(&all[i], Terms{Deadline: start.Add(remaining), Validity: 30 * time.Second})
		}
		pass(6 * time.Second)
		require.Equal(t, maxCalls*shardCount, r.callCount())
		free()
		synctest.Wait()
		require.Equal(t, (maxCalls+1)*shardCount, r.callCount())
		for i := range all {
			require.Len(t, r.renewals(&all[i]), 1)
		}
		require.Empty(t, r.lost())
	})
}

// Calls that hang and ignore their context delay neither another shard nor
// another class, and no loss is declared late.
func TestHungCallsDelayNoOtherLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{MaxBatch: 1}, nil)
		release := make(chan struct{})
		defer func() {
			close(release)
			r.w.Close()
		}()
		var all [20 * shardCount]Lease
		hung := func(l *Lease) bool { return l.home.Load() == &r.w.shards[0] && l.validity == int64(30*time.Second) }
		r.setReply(func(_ context.Context, batch []*Lease) []Outcome {
			if hung(batch[0]) {
				<-release
			}
			return always(Renewed)(nil, batch)
		})
		var short Lease
		start := time.Now()
		for i := range all {
			r.keep(&all[i], 30*time.Second)
		}
		for short.home.Load() != &r.w.shards[0] {
			short = Lease{}
			r.keep(&short, time.Second)
			if short.home.Load() != &r.w.shards[0] {
				short.Disarm()
			}
		}
		pass(2 * time.Minute)
		require.True(t, short.Disarm())
		losses := r.lost()
		require.Len(t, losses, len(all)/shardCount)
		for _, x := range losses {
			require.True(t, hung(x.l))
			require.Equal(t, DeadlinePassed, x.cause)
			require.True(t, x.at.Equal(start.Add(30*time.Second)))
		}
	})
}

func TestCloseWaitsAndIsIdempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		ended := false
		r.setReply(func(ctx context.Context, batch []*Lease) []Outcome {
			<-ctx.Done()
			time.Sleep(50 * time.Millisecond)
			ended = true
			return always(Lost)(ctx, batch)
		})
		var inCall, slotted, fixed, recent Lease
		r.keep(&inCall, 30*time.Second)
		pass(10 * time.Second)
		require.Equal(t, 1, r.callCount())
		r.keep(&slotted, 30*time.Second)
		r.w.Keep(&fixed, Terms{Deadline: time.Now().Add(30 * time.Second)})
		pass(time.Second)
		r.keep(&recent, 30*time.Second)
		start := time.Now()
		r.w.Close()
		require.True(t, ended, "Close returned before the call of Renew")
		require.Equal(t, 50*time.Millisecond, time.Since(start))
		r.w.Close()
		require.Empty(t, r.lost(), "the result came after Close")
		require.True(t, inCall.Valid() && slotted.Valid() && fixed.Valid() && recent.Valid())
		require.True(t, inCall.Disarm())
		pass(time.Minute)
		require.Empty(t, r.lost())
		require.Equal(t, 1, r.callCount())
	})
}

func TestCloseWaitsForExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := false
		w, err := New(Config{Renew: renewAll, Expired: func(*Lease, Cause) {
			time.Sleep(time.Second)
			told = true
		}})
		require.NoError(t, err)
		var l Lease
		w.Keep(&l, Terms{Deadline: time.Now()})
		time.Sleep(time.Nanosecond)
		w.Close()
		require.True(t, told)
	})
}

func TestScheduleArithmetic(t *testing.T) {
	require.NotEqual(t, classOf(int64(time.Second)), classOf(int64(30*time.Second)))
	require.Equal(t, int64(math.MaxInt64), addSaturated(math.MaxInt64-1, 2))
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

func TestDeadlineHeap(t *testing.T) {
	var h deadlineHeap
	leases := make([]Lease, 100)
	check := func() {
		for i, e := range h {
			require.Equal(t, i+1, e.pos)
			if i > 0 {
				require.LessOrEqual(t, h[(i-1)/2].key, e.key)
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
		require.GreaterOrEqual(t, h[0].key, last)
		last = h[0].key
		h.remove(h[0])
		check()
	}
}
