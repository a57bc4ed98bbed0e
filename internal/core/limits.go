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

func (c *Client) gauge(g gauge) (count *atomic.Int64, most int) {
	if g == asks {
		return &c.asking, max(c.config.MaxWaiters, leastAsking)
	}
	return &c.waiters, c.config.MaxWaiters
}

// count counts this call among those that wait for the first answer of the store, or
// for the lock, if there may be one more. MaxWaiters bounds both, each for itself: so
// a free name can be locked while others wait, and an outage does not collect calls
// without end. A Try ends soon by itself and is not counted.
func (a *Call) count(g gauge) error {
	if a.Try || a.counted >= g {
		return nil
	}
	a.uncount()
	a.counted = g // leave and deliver count it out
	if count, most := a.Client.gauge(g); count.Add(1) > int64(most) {
		return ErrTooManyWaiters
	}
	return nil
}

func (a *Call) uncount() {
	c := a.Client
	switch a.counted {
	case uncounted:
		return
	case waits:
		c.waits.Add(1)
		c.waitTime.Add(int64(c.now() - a.since))
	}
	count, _ := c.gauge(a.counted)
	count.Add(-1)
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
