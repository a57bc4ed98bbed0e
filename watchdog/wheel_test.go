package watchdog

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// faults are the ways in which a wheel can fail.
var faults = map[string]func(n int, f *fakeWheel){
	"healthy":      nil,
	"never fires":  func(_ int, f *fakeWheel) { f.silent = true },
	"all at once":  func(_ int, f *fakeWheel) { f.hasty = true },
	"blocks":       func(_ int, f *fakeWheel) { f.block = make(chan struct{}) },
	"first is bad": func(n int, f *fakeWheel) { f.silent = n == 0 },
}

// unblock lets the bubble of a test with blocked wheels end.
func (s *fakeWheels) unblock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.made {
		if f.block != nil {
			close(f.block)
		}
	}
}

// Whatever the wheel does, no lease is lost at a good store, and there are about
// as many renewals as with a good wheel.
func TestBadWheelLosesNothing(t *testing.T) {
	for name, fault := range faults {
		for _, validity := range []time.Duration{100 * time.Millisecond, time.Second, 30 * time.Second} {
			t.Run(name+" "+validity.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					wheels := &fakeWheels{setup: fault}
					r := newFixture(t, Config{}, wheels.make)
					defer r.w.Close()
					defer wheels.unblock()
					leases := make([]Lease, 2*shardCount)
					for i := range leases {
						r.keep(&leases[i], validity)
						time.Sleep(validity / 50)
					}
					pass(100 * validity)
					require.Empty(t, r.lost())
					for i := range leases {
						n := len(r.renewals(&leases[i]))
						require.Greater(t, n, 210)
						require.Less(t, n, 400)
						require.True(t, leases[i].Disarm())
					}
					require.LessOrEqual(t, wheels.most(), span/4, "an overflow wheel")
					made, asked := wheels.counts()
					life := time.Duration(pause)
					if fault == nil || name == "first is bad" {
						life = idleTime
					}
					require.LessOrEqual(t, made, 2+int(100*validity/life))
					if name != "healthy" && name != "first is bad" {
						// A few for each wheel until it is discarded.
						require.LessOrEqual(t, asked, made*8*shardCount)
					}
				})
			})
		}
	}
}

// A loss is declared at the deadline, to the nanosecond, whatever the wheel and
// the store do.
func TestLossIsPunctual(t *testing.T) {
	for wheelName, fault := range faults {
		for storeName, reply := range map[string]func(*fixture){
			"silent": func(r *fixture) { r.setReply(silent) },
			"errors": func(r *fixture) { r.setReply(always(Unknown)) },
		} {
			for _, validity := range []time.Duration{77*time.Millisecond + 7, 30*time.Second + 1} {
				t.Run(wheelName+" "+storeName+" "+validity.String(), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						wheels := &fakeWheels{setup: fault}
						r := newFixture(t, Config{}, wheels.make)
						defer r.w.Close()
						defer wheels.unblock()
						want := make(map[*Lease]time.Time)
						for range 50 {
							l := new(Lease)
							want[l] = time.Now().Add(validity)
							r.keep(l, validity)
							time.Sleep(validity / 101)
						}
						// Renewed for a while, so that deadlines have moved.
						pass(validity * 3 / 2)
						require.Empty(t, r.lost())
						reply(r)
						synctest.Wait()
						for l := range want {
							want[l] = l.Deadline()
						}
						pass(3 * validity)
						losses := r.lost()
						require.Len(t, losses, len(want))
						for _, x := range losses {
							require.Equal(t, DeadlinePassed, x.cause)
							require.True(t, x.at.Equal(want[x.l]), "declared %v after the deadline", x.at.Sub(want[x.l]))
						}
					})
				})
			}
		}
	}
}

// A wheel that ceases to fire is replaced, and the next one is used.
func TestStalledWheelIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wheels := &fakeWheels{}
		r := newFixture(t, Config{}, wheels.make)
		defer r.w.Close()
		leases := make([]Lease, 5)
		for i := range leases {
			r.keep(&leases[i], 3*time.Second)
		}
		pass(20 * time.Second)
		made, _ := wheels.counts()
		require.Equal(t, 1, made)
		wheels.made[0].mu.Lock()
		wheels.made[0].silent = true
		wheels.made[0].mu.Unlock()
		pass(20 * time.Second) // longer than pause
		made, _ = wheels.counts()
		require.Equal(t, 2, made)
		wheels.made[1].mu.Lock()
		require.Positive(t, wheels.made[1].asked)
		wheels.made[1].mu.Unlock()
		pass(time.Minute)
		made, _ = wheels.counts()
		require.Equal(t, 2, made)
		require.Empty(t, r.lost())
	})
}

// A wheel that cannot be stopped costs its memory until the process ends, so it is
// not replaced.
func TestAtMostOneWheelIsLeftHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wheels := &fakeWheels{setup: faults["blocks"]}
		r := newFixture(t, Config{}, wheels.make)
		defer r.w.Close()
		defer wheels.unblock()
		var l Lease
		r.keep(&l, time.Second)
		pass(time.Hour)
		made, _ := wheels.counts()
		require.Equal(t, 1, made)
		require.Empty(t, r.lost())
		require.True(t, l.Disarm())
	})
}

// Wheels that can be stopped are replaced again and again, after a pause each time.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wheels := &fakeWheels{setup: faults["never fires"]}
		r := newFixture(t, Config{}, wheels.make)
		defer r.w.Close()
		defer wheels.unblock()
		var l Lease
		r.keep(&l, time.Second)
		pass(100 * time.Duration(pause))
		made, _ := wheels.counts()
		require.Greater(t, made, 75)
		require.Less(t, made, 101)
		require.Empty(t, r.lost())
	})
}

func TestIdleWatchdogHasNoGoroutines(t *testing.T) {
	require.Empty(t, leftGoroutines(5*time.Second), "of an earlier test: Close does not wait for the wheel")
	synctest.Test(t, func(t *testing.T) {
		made := 0
		r := newFixture(t, Config{}, func() wheel {
			made++
			return newTimingWheel()
		})
		defer r.w.Close()
		require.Empty(t, ownGoroutines())
		var l Lease
		for round := range 3 {
			r.keep(&l, 30*time.Second)
			synctest.Wait()
			require.Empty(t, ownGoroutines(), "the lease has just begun")
			pass(9 * time.Second)
			require.Len(t, ownGoroutines(), 3, "the renewal is near")
			require.Equal(t, round+1, made)
			require.True(t, l.Disarm())
			pass(longestIdle)
			require.Empty(t, ownGoroutines(), "round %d", round)
		}

		// Renewals that follow each other within idleTime keep the wheel.
		r.keep(&l, 9*time.Second)
		pass(time.Minute)
		require.True(t, l.Disarm())
		require.Equal(t, 4, made)
		require.Empty(t, r.lost())
	})
}

// longestIdle is how long a wheel may run after the last lease has ended: its last
// entry fires, and idleTime passes.
const longestIdle = time.Duration(longestEntry) + 2*idleTime

// A process that stood still for a while sends its renewals at once, by the timer or the
// wheel, whichever wakes first.
func TestWheelOfALateProcessIsReplaced(t *testing.T) {
	for _, first := range []string{"timer", "wheel"} {
		synctest.Test(t, func(t *testing.T) {
			wheels := &fakeWheels{setup: faults["never fires"]}
			r := newFixture(t, Config{}, wheels.make)
			defer r.w.Close()
			var l Lease
			r.keep(&l, 3*time.Second)
			pass(200 * time.Millisecond)
			sh := l.home.Load()
			sh.mu.Lock()
			at := sh.wheelAt
			sh.timer.Stop()
			sh.mu.Unlock()
			require.NotZero(t, at)
			pass(time.Duration(at - r.w.now() + lateness))
			require.Zero(t, r.callCount())
			if first == "timer" {
				sh.look(0)
			} else {
				sh.look(at)
			}
			synctest.Wait()
			require.Equal(t, 1, r.callCount(), first)
			sh.look(0)
			sh.look(at)
			synctest.Wait()
			require.Equal(t, 1, r.callCount(), first)
			pass(time.Duration(pause) + 3*time.Second)
			made, _ := wheels.counts()
			require.Equal(t, 2, made, first)
			require.True(t, l.Disarm())
		})
	}
}

// An entry of the wheel that another one has replaced, or that the timer has given up,
// changes nothing when it fires.
func TestLateFiringIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wheels := &fakeWheels{}
		r := newFixture(t, Config{}, wheels.make)
		defer r.w.Close()
		var l Lease
		r.keep(&l, 3*time.Second)
		pass(200 * time.Millisecond)
		sh := l.home.Load()
		sh.mu.Lock()
		require.Len(t, sh.agenda, 1)
		at := sh.wheelAt
		require.NotZero(t, at)
		sh.wheelAt = 0
		sh.mu.Unlock()
		sh.look(at)
		synctest.Wait()
		require.Zero(t, r.callCount())
		pass(time.Second)
		require.Equal(t, 1, r.callCount())
		r.w.Close()
		sh.look(at)
		sh.look(0)
		require.Equal(t, 1, r.callCount())
	})
}

// Outside a bubble, with the real clock and the real wheel, renewals are sent. A
// machine may stop for longer than a lease, so a loss is no failure here; in the
// bubbles it is.
func TestRealTime(t *testing.T) {
	rounds := make(chan struct{}, 1000)
	var w *Watchdog
	keep := func(l *Lease) {
		w.Keep(l, Terms{Deadline: time.Now().Add(300 * time.Millisecond), Validity: 300 * time.Millisecond})
	}
	w, err := New(Config{
		Renew: func(ctx context.Context, batch []*Lease) []Outcome {
			rounds <- struct{}{}
			return renewAll(ctx, batch)
		},
		Expired: keep,
	})
	require.NoError(t, err)
	defer w.Close()
	var a, b Lease
	keep(&a)
	keep(&b)
	for range 10 {
		<-rounds
	}
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
