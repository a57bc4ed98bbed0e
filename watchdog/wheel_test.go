package watchdog

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// faults are the ways a wheel can fail.
var faults = map[string]func(n int, f *fakeWheel){
	"healthy":      nil,
	"never fires":  func(_ int, f *fakeWheel) { f.deaf = true },
	"all at once":  func(_ int, f *fakeWheel) { f.hasty = true },
	"blocks":       func(_ int, f *fakeWheel) { f.block = make(chan struct{}) },
	"first is bad": func(n int, f *fakeWheel) { f.deaf = n == 0 },
}

// unblock lets the bubble of a test with blocked wheels end.
func (s *wheelShop) unblock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.made {
		if f.block != nil {
			close(f.block)
		}
	}
}

// Whatever the wheel does, a store in good health loses nothing, and the
// renewals are about as many as with a good wheel.
func TestBadWheelLosesNothing(t *testing.T) {
	for name, fault := range faults {
		for _, validity := range []time.Duration{100 * time.Millisecond, time.Second, 30 * time.Second} {
			t.Run(name+" "+validity.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					shop := &wheelShop{setup: fault}
					r := newRig(t, Config{}, shop.make)
					defer r.w.Close()
					defer shop.unblock()
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
						require.True(t, leases[i].End())
					}
					require.LessOrEqual(t, shop.most(), span/4, "an overflow wheel")
					made, asked := shop.counts()
					require.LessOrEqual(t, made, 16)
					if name != "healthy" && name != "first is bad" {
						// A few for each wheel until it is condemned.
						require.LessOrEqual(t, asked, made*8*shardCount)
					}
				})
			})
		}
	}
}

// Loss is declared at the deadline, to the nanosecond, whatever the wheel and
// the store do.
func TestLossIsPunctual(t *testing.T) {
	for wheelName, fault := range faults {
		for storeName, reply := range map[string]func(*rig){
			"silent": func(r *rig) { r.setReply(silent) },
			"errors": func(r *rig) { r.setReply(always(Unknown)) },
		} {
			for _, validity := range []time.Duration{77*time.Millisecond + 7, 30*time.Second + 1} {
				t.Run(wheelName+" "+storeName+" "+validity.String(), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						shop := &wheelShop{setup: fault}
						r := newRig(t, Config{}, shop.make)
						defer r.w.Close()
						defer shop.unblock()
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

// A wheel that stalls after a while is noticed, replaced, and its successor used.
func TestStalledWheelIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shop := &wheelShop{}
		r := newRig(t, Config{}, shop.make)
		defer r.w.Close()
		leases := make([]Lease, 5)
		for i := range leases {
			r.keep(&leases[i], 3*time.Second)
		}
		pass(20 * time.Second)
		made, _ := shop.counts()
		require.Equal(t, 1, made)
		shop.made[0].mu.Lock()
		shop.made[0].deaf = true
		shop.made[0].mu.Unlock()
		pass(20 * time.Second)
		made, _ = shop.counts()
		require.Equal(t, 2, made)
		shop.made[1].mu.Lock()
		require.Positive(t, shop.made[1].asked)
		shop.made[1].mu.Unlock()
		pass(time.Minute)
		made, _ = shop.counts()
		require.Equal(t, 2, made)
		require.Empty(t, r.lost())
	})
}

// Wheels that cannot be stopped cost memory for good, so there are few of them.
func TestFewWheelsAreLeftStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shop := &wheelShop{setup: faults["blocks"]}
		r := newRig(t, Config{}, shop.make)
		defer r.w.Close()
		defer shop.unblock()
		var l Lease
		r.keep(&l, time.Second)
		pass(time.Hour)
		made, _ := shop.counts()
		require.Equal(t, maxStuck, made)
		require.True(t, l.End())
	})
}

// Wheels that stop when told are replaced again and again, but ever less often.
func TestRespiteGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shop := &wheelShop{setup: faults["never fires"]}
		r := newRig(t, Config{}, shop.make)
		defer r.w.Close()
		defer shop.unblock()
		var l Lease
		r.keep(&l, time.Second)
		pass(2 * time.Hour)
		made, _ := shop.counts()
		require.Greater(t, made, 12)
		require.Less(t, made, 24)
		require.Empty(t, r.lost())
	})
}

// Close does not wait for ever for a wheel that hangs.
func TestCloseWithHungWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shop := &wheelShop{setup: faults["blocks"]}
		r := newRig(t, Config{}, shop.make)
		defer r.w.Close()
		defer shop.unblock()
		var l Lease
		r.keep(&l, 30*time.Second)
		synctest.Wait()
		start := time.Now()
		r.w.Close()
		require.Equal(t, closePatience, time.Since(start))
	})
}

func TestIdleWatchdogHasNoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		r := newRig(t, Config{}, func() wheel {
			made++
			return newTimingWheel()
		})
		defer r.w.Close()
		require.Empty(t, ownGoroutines())
		var l Lease
		for round := range 3 {
			r.keep(&l, 30*time.Second)
			synctest.Wait()
			require.Len(t, ownGoroutines(), 3)
			pass(time.Minute)
			require.True(t, l.End())
			pass(longestIdle)
			require.Empty(t, ownGoroutines(), "round %d", round)
		}
		require.Equal(t, 3, made)

		// A pause shorter than linger keeps the wheel.
		for range 20 {
			r.keep(&l, 30*time.Second)
			time.Sleep(time.Second)
			require.True(t, l.End())
			time.Sleep(time.Second)
		}
		require.Equal(t, 4, made)
		require.Empty(t, r.lost())
	})
}

// longestIdle is how long the wheel may outlive the last lease: its last slot
// fires, then linger passes, which is looked at once in linger.
const longestIdle = time.Duration(longestHop) + 2*linger

// keeperRig is a wheelKeeper with a clock of its own.
type keeperRig struct {
	k         *wheelKeeper
	shop      wheelShop
	at        atomic.Int64
	condemned []*engine
}

func newKeeperRig() *keeperRig {
	r := &keeperRig{}
	r.k = &wheelKeeper{
		now:       func() int64 { return r.at.Load() },
		newWheel:  r.shop.make,
		condemned: func(e *engine) { r.condemned = append(r.condemned, e) },
	}
	return r
}

// The process was held up for so long that the library would put a new timer
// into an overflow wheel: the wheel is given nothing.
func TestWheelThatLagsIsGivenNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newKeeperRig()
		defer r.k.close()
		r.shop.setup = faults["never fires"]
		e := r.k.submit(int64(time.Second), func(*engine) {})
		synctest.Wait()
		r.at.Store(stale + 1)
		require.Same(t, e, r.k.submit(r.at.Load()+int64(time.Second), func(*engine) {}))
		synctest.Wait()
		require.Equal(t, []*engine{e}, r.condemned)
		_, asked := r.shop.counts()
		require.Equal(t, 1, asked)
		require.Nil(t, r.k.submit(r.at.Load()+int64(time.Second), func(*engine) {}), "respite")
		r.at.Add(firstRespite)
		require.NotNil(t, r.k.submit(r.at.Load()+int64(time.Second), func(*engine) {}))
		synctest.Wait()
	})
}

// A firing that was asked for within the tick does not move the library's own
// time, so it does not keep a wheel from becoming stale.
func TestImmediateFiringProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newKeeperRig()
		defer r.k.close()
		fired := 0
		e := r.k.submit(0, func(*engine) { fired++ })
		synctest.Wait()
		r.at.Store(stale - 1)
		require.Same(t, e, r.k.submit(stale-1, func(*engine) { fired++ }))
		pass(1)
		require.Equal(t, 2, fired)
		r.at.Store(stale + 1)
		require.NotSame(t, e, r.k.submit(stale+1, func(*engine) { fired++ }))
		pass(1)
		require.Equal(t, 3, fired)
	})
}

// An idle wheel that has become stale before it was stopped is not used again.
func TestStaleIdleWheelIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newKeeperRig()
		fired := 0
		e := r.k.submit(int64(time.Second), func(*engine) { fired++ })
		r.at.Store(int64(time.Second))
		pass(time.Second)
		require.Equal(t, 1, fired)
		r.at.Add(stale + 1)
		f := r.k.submit(r.at.Load()+int64(time.Second), func(*engine) { fired++ })
		require.NotSame(t, e, f)
		pass(time.Second)
		require.Equal(t, 2, fired)
		require.Empty(t, r.condemned, "an idle wheel is not at fault")
		require.Zero(t, r.k.stuck)
		require.Positive(t, r.k.retire(e), "not its business any more")
		r.k.condemn(e) // late: another is current
		require.Empty(t, r.condemned)
		r.k.close()
		require.Nil(t, r.k.submit(0, nil))
	})
}

// When the timer itself comes late the process was held up, and the wheel with
// it: the work is done and the wheel keeps its good name.
func TestLateTimerDoesNotBlameTheWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shop := &wheelShop{setup: faults["never fires"]}
		r := newRig(t, Config{}, shop.make)
		defer r.w.Close()
		defer shop.unblock()
		var l Lease
		r.keep(&l, 30*time.Second)
		sh := l.home.Load()
		sh.mu.Lock()
		sh.timer.Stop()
		sh.mu.Unlock()
		pass(15 * time.Second)
		require.Zero(t, r.callCount())
		e := r.w.wheels.current
		sh.look()
		synctest.Wait()
		require.Equal(t, 1, r.callCount())
		require.Zero(t, e.strikes.Load())
		require.True(t, l.End())
	})
}

// A firing that the shard has ceased to wait for changes nothing.
func TestLateFiringIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shop := &wheelShop{}
		r := newRig(t, Config{}, shop.make)
		defer r.w.Close()
		var l Lease
		r.keep(&l, 3*time.Second)
		synctest.Wait()
		sh := l.home.Load()
		sh.mu.Lock()
		require.Len(t, sh.slots, 1)
		var s *slot
		for _, s = range sh.slots {
		}
		e := s.engine
		sh.mu.Unlock()
		sh.offWheel(e)
		require.Nil(t, s.engine)
		sh.fired(s, e, s.at)
		synctest.Wait()
		require.Zero(t, r.callCount())
		pass(1500 * time.Millisecond)
		require.Equal(t, 1, r.callCount())
		r.w.Close()
		sh.offWheel(e)
		sh.fired(s, e, s.at)
		sh.look()
		require.Equal(t, 1, r.callCount())
	})
}

// Outside a bubble, on the real clock and the real wheel, renewals are sent. On
// a machine that stands still for longer than a lease they may come too late, so
// a loss is no failure here: in the bubbles, it is.
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
		Expired: func(l *Lease, _ Cause) { keep(l) },
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
