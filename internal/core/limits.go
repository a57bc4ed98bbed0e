package core

import "sync/atomic"

// leastAsking is how many calls may wait for the answer to their first request,
// however small MaxWaiters is: they do not wait for a lock yet.
const leastAsking = 1000

// gauge says which of the two counters of calls this call is counted in.
type gauge uint8

const (
	uncounted gauge = iota
	asks            // waits for the answer to its first request
	waits           // waits for the lock
)

func (c *Client) gauge(g gauge) *atomic.Int64 {
	if g == asks {
		return &c.asking
	}
	return &c.waiters
}

// count counts this call among those that wait for the first answer of the store, or
// for the lock, if there may be one more. MaxWaiters bounds both, each for itself: so
// a free name can be locked while others wait, and an outage does not collect calls
// without end.
func (a *Call) count(g gauge, most int) error {
	a.uncount()
	a.counted = g // leave and deliver count it out
	if a.Client.gauge(g).Add(1) > int64(most) {
		return ErrTooManyWaiters
	}
	return nil
}

func (a *Call) countAsking() error {
	return a.count(asks, max(a.Client.config.MaxWaiters, leastAsking))
}

func (a *Call) countWaiting() error {
	if a.counted == waits {
		return nil
	}
	return a.count(waits, a.Client.config.MaxWaiters)
}

func (a *Call) uncount() {
	if a.counted == uncounted {
		return
	}
	c := a.Client
	c.gauge(a.counted).Add(-1)
	if a.counted == waits {
		c.waits.Add(1)
		c.waitTime.Add(int64(c.now() - a.since))
	}
	a.counted = uncounted
}

// askedAt notes when the request of this call was sent. What it has waited before is
// counted. The shard is locked.
func (a *Call) askedAt(at moment) {
	if a.counted == waits {
		a.Client.waitTime.Add(int64(at - a.since))
	}
	a.since = at
}
