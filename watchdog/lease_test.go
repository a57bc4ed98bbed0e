package watchdog

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNewRefusesBadConfig(t *testing.T) {
	renew, expired := renewAll, func(*Lease, Cause) {}
	for name, cfg := range map[string]Config{
		"no Renew":          {Expired: expired},
		"no Expired":        {Renew: renew},
		"negative Timeout":  {Renew: renew, Expired: expired, Timeout: -1},
		"negative MaxBatch": {Renew: renew, Expired: expired, MaxBatch: -1},
	} {
		w, err := New(cfg)
		require.ErrorIs(t, err, ErrConfig, name)
		require.Nil(t, w, name)
	}
}

func TestZeroLease(t *testing.T) {
	var l Lease
	require.False(t, l.Valid())
	require.False(t, l.Check())
	require.False(t, l.End())
	require.False(t, l.Disarm())
	require.True(t, l.Deadline().IsZero())
}

func TestLeaseOfAnotherWatchdogPanics(t *testing.T) {
	a, b := newRig(t, Config{}, nil), newRig(t, Config{}, nil)
	defer a.w.Close()
	defer b.w.Close()
	var l Lease
	a.w.Keep(&l, Terms{Deadline: time.Now().Add(time.Hour)})
	require.Panics(t, func() { b.w.Keep(&l, Terms{Deadline: time.Now().Add(time.Hour)}) })
}

func TestEndBeforeDeadline(t *testing.T) {
	for name, end := range map[string]func(*Lease) bool{"End": (*Lease).End, "Disarm": (*Lease).Disarm} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Config{}, nil)
				defer r.w.Close()
				var l Lease
				deadline := time.Now().Add(time.Second)
				r.w.Keep(&l, Terms{Deadline: deadline})
				require.True(t, l.Valid())
				require.True(t, l.Check())
				require.True(t, l.Deadline().Equal(deadline))
				pass(time.Second - 1)
				require.True(t, l.Valid())
				require.True(t, end(&l))
				require.False(t, l.Valid())
				require.True(t, l.Deadline().IsZero())
				require.False(t, end(&l))
				pass(time.Minute)
				require.Empty(t, r.lost())
			})
		})
	}
}

// The timer and the caller meet at the deadline in this bubble; whichever comes
// first, the lease is lost then and there, and told once.
func TestEndAtDeadline(t *testing.T) {
	for name, end := range map[string]func(*Lease) bool{
		"End": (*Lease).End, "Check": (*Lease).Check, "Disarm": (*Lease).Disarm,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Config{}, nil)
				defer r.w.Close()
				var l Lease
				deadline := time.Now().Add(time.Second)
				r.w.Keep(&l, Terms{Deadline: deadline})
				time.Sleep(time.Second)
				require.False(t, l.Valid())
				require.False(t, end(&l))
				synctest.Wait()
				require.Equal(t, []lossSeen{{&l, DeadlinePassed, deadline}}, r.lost())
				require.False(t, end(&l))
				require.Len(t, r.lost(), 1)
			})
		})
	}
}

// With no timer to help, End and Check declare on the caller's own goroutine
// and Disarm leaves the lease to them.
func TestPassedDeadlineIsDeclaredByTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{}, nil)
		var a, b Lease
		for _, l := range []*Lease{&a, &b} {
			r.w.Keep(l, Terms{Deadline: time.Now().Add(time.Second)})
		}
		r.w.Close() // declares nothing any more
		require.True(t, a.Valid())
		pass(time.Minute)
		require.Empty(t, r.lost())
		require.False(t, a.Valid())
		require.False(t, a.Disarm())
		require.Empty(t, r.lost())
		require.False(t, a.End())
		require.Len(t, r.lost(), 1)
		require.False(t, b.Check())
		require.Len(t, r.lost(), 2)
		require.False(t, a.End() || b.End() || a.Check() || b.Check())
		require.Len(t, r.lost(), 2)
	})
}

func TestDeadlineInThePastIsLostAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{}, nil)
		defer r.w.Close()
		var l Lease
		r.w.Keep(&l, Terms{Deadline: time.Now().Add(-time.Hour), Validity: time.Second, Urgent: true})
		require.False(t, l.Valid())
		synctest.Wait()
		require.Equal(t, []lossSeen{{&l, DeadlinePassed, time.Now()}}, r.lost())
		require.Zero(t, r.callCount())
	})
}

func TestKeepAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{}, nil)
		defer r.w.Close()
		var l Lease
		r.keep(&l, time.Second)
		require.True(t, l.End())
		r.keep(&l, 2*time.Second) // after End
		pass(10 * time.Second)
		require.True(t, l.Valid())
		require.Empty(t, r.lost())

		deadline := time.Now().Add(3 * time.Second)
		r.w.Keep(&l, Terms{Deadline: deadline}) // of an armed lease: new terms
		n := len(r.renewals(&l))
		pass(3 * time.Second)
		require.Len(t, r.renewals(&l), n, "the new terms have no renewal")
		require.Equal(t, []lossSeen{{&l, DeadlinePassed, deadline}}, r.lost())

		r.keep(&l, time.Second) // after a loss
		pass(10 * time.Second)
		require.True(t, l.End())
		require.Len(t, r.lost(), 1)

		// An earlier deadline than the one replaced.
		r.w.Keep(&l, Terms{Deadline: time.Now().Add(time.Hour)})
		deadline = time.Now().Add(time.Second)
		r.w.Keep(&l, Terms{Deadline: deadline})
		pass(time.Minute)
		require.Equal(t, lossSeen{&l, DeadlinePassed, deadline}, r.lost()[1])
	})
}

func TestKeepAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{}, nil)
		r.w.Close()
		var l Lease
		r.keep(&l, time.Second)
		require.True(t, l.Valid())
		require.True(t, l.End())
		r.keep(&l, time.Second)
		pass(time.Second)
		require.False(t, l.Valid())
		require.Zero(t, r.callCount())
		require.Empty(t, r.lost())
	})
}

func TestExpiredMayUseTheWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *Watchdog
		var l Lease
		told := 0
		w, err := New(Config{Renew: renewAll, Expired: func(x *Lease, c Cause) {
			told++
			require.False(t, x.Valid() || x.Check() || x.End())
			if told < 3 {
				w.Keep(x, Terms{Deadline: time.Now().Add(time.Second)})
			}
		}})
		require.NoError(t, err)
		defer w.Close()
		w.Keep(&l, Terms{Deadline: time.Now().Add(time.Second)})
		pass(time.Minute)
		require.Equal(t, 3, told)
	})
}

// A renewal that is under way when its lease ends, or ends and is armed again,
// concerns nobody, whatever it reports.
func TestFault71ResultOfAnEarlierGenerationIsIgnored(t *testing.T) {
	for _, outcome := range []Outcome{Unknown, Renewed, Lost} {
		for _, rearm := range []string{"no", "urgent", "later", "in place"} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Config{}, nil)
				defer r.w.Close()
				release := make(chan struct{})
				free := sync.OnceFunc(func() { close(release) })
				defer free()
				r.setReply(func(_ context.Context, batch []*Lease) []Outcome {
					<-release
					return always(outcome)(nil, batch)
				})
				var l Lease
				r.w.Keep(&l, Terms{Deadline: time.Now().Add(8 * time.Second), Validity: 8 * time.Second, Urgent: true})
				synctest.Wait()
				require.Equal(t, 1, r.callCount())

				deadline := time.Now().Add(6 * time.Second)
				if rearm != "in place" {
					require.True(t, l.End())
				}
				if rearm != "no" {
					// Half of the validity, so that the old renewal would show.
					r.w.Keep(&l, Terms{Deadline: deadline, Validity: 6 * time.Second, Urgent: rearm == "urgent"})
				}
				pass(time.Second)
				require.Equal(t, 1, r.callCount(), "never two calls for one lease")
				r.setReply(silent)
				free()
				synctest.Wait()
				require.Empty(t, r.lost())
				if rearm == "no" {
					require.False(t, l.Valid())
					pass(time.Minute)
					require.Equal(t, 1, r.callCount())
					require.Empty(t, r.lost())
					return
				}
				require.True(t, l.Deadline().Equal(deadline), "%d %s: moved to %v", outcome, rearm, l.Deadline())
				if rearm == "urgent" {
					require.Equal(t, 2, r.callCount(), "sent as soon as the old call ended")
				}
				pass(time.Until(deadline))
				require.Equal(t, []lossSeen{{&l, DeadlinePassed, deadline}}, r.lost())
			})
		}
	}
}

// Armings end at random moments around their renewals and
// their deadlines. Each ends in exactly one way, and no deadline is moved by a
// renewal of an earlier arming.
func TestFault71ManyInterleavings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, rounds = 250, 100
		var told, ended, renewed atomic.Int64
		type owner struct {
			expired atomic.Int64
			arming  atomic.Int64
			doomed  atomic.Int64 // the arming that Renew has reported lost
			Lease
		}
		w, err := New(Config{
			Renew: func(_ context.Context, batch []*Lease) []Outcome {
				renewed.Add(int64(len(batch)))
				armings := make([]int64, len(batch))
				for i, l := range batch {
					armings[i] = l.Value.(*owner).arming.Load()
				}
				time.Sleep(rand.N(30 * time.Millisecond))
				out := make([]Outcome, len(batch))
				for i, l := range batch {
					if out[i] = Outcome(rand.IntN(3)); out[i] == Lost {
						l.Value.(*owner).doomed.Store(armings[i])
					}
				}
				return out
			},
			Expired: func(l *Lease, cause Cause) {
				o := l.Value.(*owner)
				if cause == ToldLost && o.doomed.Load() != o.arming.Load() {
					t.Errorf("arming %d lost by what was reported of arming %d", o.arming.Load(), o.doomed.Load())
				}
				o.expired.Add(1)
				told.Add(1)
			},
		})
		require.NoError(t, err)
		var done sync.WaitGroup
		for range workers {
			done.Go(func() {
				o := &owner{}
				o.Value = o
				for round := range rounds {
					validity := 20*time.Millisecond + rand.N(100*time.Millisecond)
					before := o.expired.Load()
					o.arming.Add(1)
					kept := time.Now()
					w.Keep(&o.Lease, Terms{Deadline: kept.Add(validity), Validity: validity, Urgent: round%4 == 0})
					time.Sleep(rand.N(validity * 3 / 2))
					if d := o.Deadline(); !d.IsZero() && d.After(time.Now().Add(validity)) {
						t.Errorf("deadline %v ahead, validity %v", time.Until(d), validity)
					}
					var end bool
					if round%2 == 0 {
						end = o.End()
					} else if end = o.Disarm(); !end {
						o.Check()
					}
					if end {
						ended.Add(1)
					}
					if round%8 == 0 {
						// What is still under way now ends before the next arming.
						time.Sleep(rand.N(40 * time.Millisecond))
					}
					if !end && o.expired.Load() == before {
						// Another goroutine has decided on the loss and is about to
						// tell it: the clock of a bubble waits for it.
						time.Sleep(time.Nanosecond)
					}
					if got := o.expired.Load() - before; (got == 1) == end || got > 1 {
						t.Errorf("End %v and Expired %d times", end, got)
					}
				}
			})
		}
		done.Wait()
		w.Close()
		require.EqualValues(t, workers*rounds, told.Load()+ended.Load())
		require.Greater(t, told.Load(), int64(1000))
		require.Greater(t, ended.Load(), int64(1000))
		require.Greater(t, renewed.Load(), int64(5000))
	})
}

// A hundred thousand on real threads, where calls meet at instructions rather
// than moments.
func TestFault71InParallel(t *testing.T) {
	var told atomic.Int64
	w, err := New(Config{
		Renew: func(_ context.Context, batch []*Lease) []Outcome {
			out := make([]Outcome, len(batch))
			for i := range out {
				out[i] = Outcome(rand.IntN(3))
			}
			return out
		},
		Expired: func(*Lease, Cause) { told.Add(1) },
	})
	require.NoError(t, err)
	var ended, kept atomic.Int64
	var done sync.WaitGroup
	for range 8 {
		done.Go(func() {
			var l Lease
			for i := range 12_500 {
				validity := time.Second
				if i%3 == 0 {
					validity = rand.N(50 * time.Microsecond)
				}
				w.Keep(&l, Terms{Deadline: time.Now().Add(validity), Validity: validity, Urgent: true})
				kept.Add(1)
				l.Valid()
				if l.End() {
					ended.Add(1)
				}
			}
		})
	}
	done.Wait()
	w.Close()
	require.Equal(t, kept.Load(), ended.Load()+told.Load())
}
