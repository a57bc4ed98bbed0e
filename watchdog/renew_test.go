package watchdog

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

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
// entered at the deadline or after it.
func TestFault67WithoutTheTimer(t *testing.T) {
	outcomes := []Outcome{Renewed, Lost, Unknown}
	for i := range 2 * len(outcomes) {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Config{}, nil)
			defer r.w.Close()
			free := r.holdReplies(outcomes[i%len(outcomes)])
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
			pass(time.Until(deadline) + time.Duration(i/len(outcomes))*time.Second)
			require.Equal(t, DeadlinePassed, l.Cause())
			free()
			synctest.Wait()
			require.False(t, l.Valid())
			require.True(t, l.Deadline().Equal(deadline))
			require.False(t, l.Disarm())
			require.Empty(t, r.lost())
			sh.look(0)
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
