package peers

import (
	"sync"
	"time"
)

// renewal is the goroutine that a caller writes for a library that does not
// renew by itself. It calls extend every third of the lease, and takes the lock
// for lost when that reports false.
type renewal struct {
	lost  chan struct{}
	ended chan struct{}
	end   func()
	runs  sync.WaitGroup
}

func renewed(extend func() bool) *renewal {
	r := &renewal{lost: make(chan struct{}), ended: make(chan struct{})}
	r.end = sync.OnceFunc(func() { close(r.ended) })
	r.runs.Go(func() {
		for tick := time.NewTicker(lease / 3); ; {
			select {
			case <-r.ended:
				tick.Stop()
				return
			case <-tick.C:
			}
			if !extend() {
				close(r.lost)
				return
			}
		}
	})
	return r
}

func (r *renewal) Lost() <-chan struct{} { return r.lost }

// stop ends the renewal before the lock is given up, so that it is not extended
// afterwards.
func (r *renewal) stop() {
	r.end()
	r.runs.Wait()
}

// over reports whether the renewal is to end.
func (r *renewal) over() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}
