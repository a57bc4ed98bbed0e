package peers

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"
)

// wakeup has a waiter lose all its connections, and the holder unlock before it
// can connect again, so that nobody hears of it. It returns how long after its
// wire works again the waiter has the lock, blocked at most, or the error that it
// got instead.
func (s *site) wakeup(t testing.TB, name string) (after time.Duration, failed error) {
	t.Helper()
	c, w := s.client(t)
	h := prepare(t, s.near(t), name)
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	waits := begin(ctx, c, name)
	time.Sleep(lease/10 + rand.N(lease/2)) // for the waiter, to get in line
	w.set(down)
	if err := h.Unlock(); err != nil {
		t.Fatal(err)
	}
	w.set(whole)
	healed := time.Now()
	select {
	case o := <-waits.done:
		if o.err != nil {
			return 0, o.err
		}
		o.hold.Unlock()
		return o.at.Sub(healed), nil
	case <-time.After(blocked):
		leave()
		<-waits.done
		return blocked, nil
	}
}
