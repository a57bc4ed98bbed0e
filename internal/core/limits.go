package core

import "sync/atomic"

// leastAsking is how many calls may wait for the answer to their first request,
// however small MaxWaiters is: they do not wait for a lock yet.
const leastAsking = 1000

// count counts this call among those that wait for the first answer of the store, or
// for the lock, if there may be one more. MaxWaiters bounds both, each for itself: so
// a free name can be locked while others wait, and an outage does not collect calls
// without end.
func (a *Call) count(n *atomic.Int64, most int) error {
	a.uncount()
	a.counted = n // leave and deliver count it out
	if n.Add(1) > int64(most) {
		return ErrTooManyWaiters
	}
	return nil
}

func (a *Call) countAsking() error {
	return a.count(&a.Client.asking, max(a.Client.config.MaxWaiters, leastAsking))
}

func (a *Call) countWaiting() error {
	if a.counted == &a.Client.waiters {
		return nil
	}
	if a.since == 0 {
		a.since = a.Client.now()
	}
	return a.count(&a.Client.waiters, a.Client.config.MaxWaiters)
}

func (a *Call) uncount() {
	if a.counted != nil {
		a.counted.Add(-1)
		a.counted = nil
	}
}
