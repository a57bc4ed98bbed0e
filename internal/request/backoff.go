package request

import (
	"math/rand/v2"
	"time"
)

// Backoff is a pause that doubles from 5 ms up to Limit. Each is shortened by up to a half at random,
// so that clients that failed together do not return together.
type Backoff struct {
	Limit time.Duration
	last  time.Duration
}

// Reset has the next pause be the shortest.
func (b *Backoff) Reset() { b.last = 0 }

// Next returns the next pause.
func (b *Backoff) Next() time.Duration {
	b.last = max(min(max(2*b.last, 5*time.Millisecond), b.Limit), time.Millisecond)
	return b.last - rand.N(b.last/2)
}

// Sleep pauses, or returns false when done closes first.
func (b *Backoff) Sleep(done <-chan struct{}) bool { return sleep(b.Next(), done, nil) }

// sleep lets d pass, or returns false when one of the channels is ready first.
func sleep(d time.Duration, done, stop <-chan struct{}) bool {
	select {
	case <-time.After(d):
		return true
	case <-done:
		return false
	case <-stop:
		return false
	}
}
