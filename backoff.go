package dlock

import (
	"math/rand/v2"
	"time"
)

// backoff is a pause that doubles from 5 ms up to limit. Each is shortened by
// up to a half at random, so that clients that failed together do not return
// together.
type backoff struct {
	limit time.Duration
	last  time.Duration
}

func (b *backoff) reset() { b.last = 0 }

func (b *backoff) next() time.Duration {
	b.last = max(min(max(2*b.last, 5*time.Millisecond), b.limit), time.Millisecond)
	return b.last - rand.N(b.last/2)
}

// sleep pauses, or returns false when done closes first.
func (b *backoff) sleep(done <-chan struct{}) bool {
	timer := time.NewTimer(b.next())
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-done:
		return false
	}
}
