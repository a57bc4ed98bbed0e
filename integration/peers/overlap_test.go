package peers

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"
)

// watched is how long a holder is watched after its rival was granted. Who has
// not been told by then is not told in time to do anything about it.
const watched = 4 * lease

// overlap has the holder's wires lose everything, at some moment of its lease,
// while a rival waits on wires that work. It returns for how long both held:
// from the grant of the rival to when the holder was told, which is negative if
// that was before. Who is not told holds to the end of the watch. A run is void
// if the machine has stopped this process, which is the holder too, for longer:
// then it says nothing of the library.
func (s *site) overlap(t testing.TB, name string) (both time.Duration, told, void bool) {
	t.Helper()
	c, w := s.client(t)
	rival := s.near(t)
	h := prepare(t, c, name)
	waits := begin(context.Background(), rival, name)
	time.Sleep(lease/10 + rand.N(lease)) // also for the rival, to get in line
	lost, end := make(chan time.Time, 1), make(chan struct{})
	defer close(end)
	go func() {
		select {
		case <-h.Lost():
			lost <- time.Now()
		case <-end:
		}
	}()
	select {
	case <-lost:
		t.Fatal("lost before anything had happened")
	default:
	}
	w.set(dark)

	granted := waits.granted(t)
	if d, ok := h.(dlockHold); ok && d.Err() == nil { // it looks at the clock, so no stop excuses it
		t.Error("the rival has the lock, and Err says that the holder does")
	}
	select {
	case at := <-lost:
		both, told = at.Sub(granted.at), true
		if both > 0 {
			stopped := s.pulse.Stopped(granted.at.Add(-lease/10), at)
			void = stopped > 2*stall && stopped > both
		}
	case <-time.After(watched):
		both = time.Since(granted.at)
	}
	w.set(whole)
	h.Unlock() // of a lock that was lost, which may fail
	granted.hold.Unlock()
	return both, told, void
}

// call is a Lock under way.
type call struct{ done chan outcome }

type outcome struct {
	hold hold
	err  error
	at   time.Time
}

func begin(ctx context.Context, c client, name string) call {
	w := call{make(chan outcome, 1)}
	go func() {
		h, err := c.Lock(ctx, name)
		w.done <- outcome{h, err, time.Now()}
	}()
	return w
}

const patience = time.Minute

// granted waits for the lock.
func (w call) granted(t testing.TB) outcome {
	t.Helper()
	select {
	case o := <-w.done:
		if o.err != nil {
			t.Fatal(o.err)
		}
		return o
	case <-time.After(patience):
		t.Fatalf("not granted within %v", patience)
	}
	return outcome{}
}

// prepare takes a lock before anything is wrong, which is not what is judged: on
// a busy machine it may take a second try.
func prepare(t testing.TB, c client, name string) hold {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		select {
		case o := <-begin(context.Background(), c, name).done:
			if o.err == nil {
				return o.hold
			}
			if time.Now().After(deadline) {
				t.Fatal(o.err)
			}
		case <-time.After(time.Until(deadline)):
			t.Fatalf("a free lock is not granted within %v", patience)
		}
	}
}
