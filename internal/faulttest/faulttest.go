// Package faulttest is the tests of faults that are the same for all stores on real servers. The
// packages of the stores call Run.
package faulttest

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
)

// Run runs the tests. Each gets a site of its own, which may make the test parallel. The numbers are
// rows of docs/faults.md.
func Run(t *testing.T, site func(t *testing.T) *Site) {
	t.Run("Fault08ReleaseLost", func(t *testing.T) { site(t).releaseLost() })
	t.Run("Fault48HolderKilled", func(t *testing.T) { site(t).holderKilled() })
	t.Run("Fault49HeadOfQueueKilled", func(t *testing.T) { site(t).headOfQueueKilled() })
	t.Run("Fault50WokenWaiterKilled", func(t *testing.T) { site(t).wokenWaiterKilled() })
	t.Run("Fault70ReleaseAfterTheContextHasEnded", func(t *testing.T) { site(t).releaseAfterTheContextHasEnded() })
	t.Run("Fault78ProcessKilled", func(t *testing.T) { site(t).processKilled() })
	t.Run("Fault81ReaderKilled", func(t *testing.T) { site(t).readerKilled() })
	t.Run("Fault84ForcedRelease", func(t *testing.T) { site(t).forcedRelease() })
	t.Run("Fault85AnyName", func(t *testing.T) { site(t).anyName() })
	t.Run("Fault85RenewalOfAnyName", func(t *testing.T) { site(t).renewalOfAnyName() })
	t.Run("Fault86RefusedTTL", func(t *testing.T) { site(t).refusedTTL() })
}

// Site is a server without locks, for one test.
type Site struct {
	T      *testing.T
	Addr   string                       // of the server: "127.0.0.1:port"
	URL    func(addr string) string     // of the store, by way of that address
	Open   func(url string) store.Store // a handle that is closed when the test ends
	Direct Direct                       // a handle through which the test looks
	Empty  func(within time.Duration)   // waits until no lock is left at the server
	Listen func()                       // waits until the one waiter gets events; nil: Open does

	// Counts returns a handle, and a function that says how many requests it has sent. nil: they
	// are not counted.
	Counts func() (store.Store, func() int)

	// Lease is the lease of those who die and of those who wait for them.
	Lease time.Duration
	// Lag is how much longer than its time the server may keep a lease.
	Lag time.Duration
	// Spare is how much longer than WaitTTL a place lasts after the death of its waiter. It is 0
	// where the time of a grant counts from the grant, also if its waiter lives on for a moment.
	Spare time.Duration
	// Floor: Inspect rounds what remains of a lease down to a multiple of it. 0: it rounds to
	// milliseconds.
	Floor time.Duration
	// Doubt is by how much more Inspect may say that remains, for a store that knows the server's
	// clock within bounds.
	Doubt time.Duration
}

// Direct is a handle of a store that does all that stores can do.
type Direct interface {
	store.Store
	store.Breaker
	store.Lister
}

// rounding is by how much a lease may be shorter than a store says that rounds to milliseconds.
func (s *Site) rounding() time.Duration {
	if s.Floor > 0 {
		return 0
	}
	return s.Doubt + time.Millisecond
}

func (s *Site) url() string { return s.URL(s.Addr) }

// mortal are the options of those who wait for the dead, patient of those who ask only when they
// are told to.
func (s *Site) mortal() dlock.Options { return dlock.Options{TTL: s.Lease} }
func (s *Site) patient() dlock.Options {
	return dlock.Options{TTL: 4 * s.Lease, WaitTTL: 4 * s.Lease}
}

// client is a client with a handle of its own.
func (s *Site) client(o dlock.Options) *dlock.Client {
	s.T.Helper()
	return locktest.NewClient(s.T, s.Open(s.url()), o)
}

func (s *Site) child(job, name string) *locktest.Child {
	s.T.Helper()
	return locktest.StartChild(s.T, job, s.url(), name, s.Lease)
}

// waiter starts a child that waits for the lock.
func (s *Site) waiter(job, name string) *locktest.Child {
	s.T.Helper()
	before := len(s.state(name).Queue)
	c := s.child(job, name)
	s.queued(name, before+1)
	return c
}

func (s *Site) state(name string) store.State {
	s.T.Helper()
	state, err := s.Direct.Inspect(s.T.Context(), name)
	if err != nil {
		s.T.Fatal(err)
	}
	return state
}

func (s *Site) queued(name string, n int) {
	s.T.Helper()
	locktest.Queued(s.T, s.Direct, name, n)
}

// holds asserts that the hold is good and the only one that the server has.
func (s *Site) holds(h *dlock.Hold) {
	s.T.Helper()
	locktest.OnlyHold(s.T, h, s.state(h.Name()))
}

// over asserts that nobody holds name or waits for it, and that nothing is left when the ids that
// are buried have been forgotten.
func (s *Site) over(name string, o dlock.Options) {
	s.T.Helper()
	locktest.Unused(s.T, s.state(name))
	s.Empty(o.TTL + 2*time.Second)
}

// counts returns a handle, and a function that says how many requests it has sent.
func (s *Site) counts() (store.Store, func() int) {
	if s.Counts == nil {
		return s.Open(s.url()), func() int { return 0 }
	}
	return s.Counts()
}

// listens waits until the one waiter gets events.
func (s *Site) listens() {
	s.T.Helper()
	if s.Listen != nil {
		s.Listen()
	}
}

// endOfLease looks at the lease of the one holder, which died just now. It returns a function that
// asserts that the lock was granted to the next when that was over: not before, and hardly later.
func (s *Site) endOfLease(name string) func(granted time.Time) {
	s.T.Helper()
	if s.Doubt > 0 {
		locktest.LearnClock(s.T, s.Direct, name)
	}
	asked := time.Now()
	state := s.state(name)
	answered := time.Now()
	if len(state.Holders) != 1 {
		s.T.Fatalf("the holders are %+v, want one", state.Holders)
	}
	left := state.Holders[0].Remaining
	return func(granted time.Time) {
		s.T.Helper()
		if early := asked.Add(left).Sub(granted); early > s.rounding() {
			s.T.Errorf("granted %v before the lease was over", early)
		}
		if after := granted.Sub(answered.Add(left)); after > s.Floor+s.Lag+locktest.Late {
			s.T.Errorf("granted %v after the lease was over", after)
		}
		if after := granted.Sub(asked); after > s.Lease+s.Lag+locktest.Late {
			s.T.Errorf("granted %v after the death, with a lease of %v", after, s.Lease)
		}
	}
}
