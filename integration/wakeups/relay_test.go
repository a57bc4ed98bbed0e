package wakeups

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
)

// asleep waiters ask by themselves only every 5 s: whoever gets in sooner was
// told to.
var asleep = dlock.Options{TTL: 15 * time.Second, WaitTTL: 15 * time.Second}

// lost is how long a hand-over takes that nobody was told of, at least. The client of
// ZooKeeper waits for a second before it connects to its only server again.
const (
	lost            = time.Second
	lostOnZookeeper = 2500 * time.Millisecond
)

const (
	runners = 4 // of each lock, each with connections of its own
	batons  = 8 // locks at once
)

// relay hands locks over between clients, each of which wants every lock again
// as soon as it has given it up: so each unlock is a hand-over to the next in
// the queue.
type relay struct {
	pulse *locktest.Pulse
	goal  int64
	lost  time.Duration // how long a hand-over takes that nobody was told of
	count atomic.Int64  // hand-overs so far
	done  chan struct{} // closed at the goal

	mu    sync.Mutex
	took  []time.Duration // each hand-over, from before Unlock to after LockContext
	kills int
	slow  []slow
}

// slow is a hand-over that took longer than a relay's lost.
type slow struct {
	name  string
	from  time.Time
	took  time.Duration
	token uint64
}

func newRelay(p *locktest.Pulse, goal int) *relay {
	return &relay{pulse: p, goal: int64(goal), lost: lost, done: make(chan struct{})}
}

// run makes the hand-overs, and has kill, which kills the connections that tell
// of them and says how many there were, happen so often in between.
func (r *relay) run(t *testing.T, clients []*dlock.Client, kills int, kill func() int) {
	began := time.Now()
	var running sync.WaitGroup
	for n := range batons {
		name := fmt.Sprint("baton ", n)
		var b baton
		for _, c := range clients {
			running.Go(func() {
				if err := r.carry(c, name, &b); err != nil {
					t.Errorf("%s: %v", name, err)
					r.end()
				}
			})
		}
	}
	for n := range kills {
		if !r.reaches(int64(n+1) * r.goal / int64(kills+1)) {
			break
		}
		bitten := false
		for deadline := time.Now().Add(locktest.Patience); !bitten && time.Now().Before(deadline); {
			bitten = kill() > 0
		}
		if !bitten {
			t.Error("there was nothing to kill")
		}
	}
	r.reaches(r.goal)
	r.end()
	running.Wait()
	r.report(t, time.Since(began))
}

// baton is what is known of a lock by its holder alone, so the lock guards it.
type baton struct {
	released time.Time // zero: never held
	token    uint64
}

// carry takes the lock and gives it up, until the relay is over.
func (r *relay) carry(c *dlock.Client, name string, b *baton) error {
	for !r.over() {
		h, err := c.Mutex(name).LockContext(context.Background())
		if err != nil {
			return err
		}
		if !b.released.IsZero() {
			r.handed(name, b.released, time.Now(), h.Token())
		}
		if h.Token() <= b.token {
			return fmt.Errorf("token %d was followed by %d", b.token, h.Token())
		}
		b.released, b.token = time.Now(), h.Token()
		if err := h.Unlock(); err != nil {
			return err
		}
	}
	return nil
}

func (r *relay) handed(name string, from, to time.Time, token uint64) {
	took := to.Sub(from)
	r.mu.Lock()
	r.took = append(r.took, took)
	if took > r.lost {
		r.slow = append(r.slow, slow{name, from, took, token})
	}
	r.mu.Unlock()
	if r.count.Add(1) == r.goal {
		r.end()
	}
}

func (r *relay) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over() {
		close(r.done)
	}
}

func (r *relay) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// reaches waits for so many hand-overs, and reports false if the relay is over.
func (r *relay) reaches(n int64) bool {
	for r.count.Load() < n && !r.over() {
		time.Sleep(time.Millisecond)
	}
	return !r.over()
}

func (r *relay) killed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kills++
}

// report judges the relay, and logs how quick it was.
func (r *relay) report(t *testing.T, in time.Duration) {
	t.Helper()
	if len(r.took) == 0 {
		t.Fatal("no hand-over")
	}
	late, worst := 0, time.Duration(0)
	for _, s := range r.slow {
		ran := s.took - r.pulse.Stopped(s.from, s.from.Add(s.took))
		if worst = max(worst, ran); ran <= r.lost {
			continue // it was not the waiter that nobody told, it was the machine
		}
		late++
		t.Errorf("the waiter for %s got in %v after it was released, in %v of which the server answered (token %d)", s.name, s.took, ran, s.token)
	}
	slices.Sort(r.took)
	at := func(part float64) time.Duration {
		return r.took[int(part*float64(len(r.took)-1))].Round(10 * time.Microsecond)
	}
	t.Logf("%d hand-overs with %d kills in %v: median %v, p99 %v, worst %v, lost %d",
		len(r.took), r.kills, in.Round(time.Millisecond), at(0.5), at(0.99), at(1), late)
	if n := len(r.slow); n > 0 {
		t.Logf("%d took longer than %v; without the times when the server was stopped, %v at most, the worst was %v", n, r.lost, r.pulse.Worst(), worst)
	}
}
