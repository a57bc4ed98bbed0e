package core

import (
	"slices"
	"sync/atomic"
	"time"
)

// Stats is what the client holds and does at one moment, and what it has done. The
// public package documents the fields.
type Stats struct {
	Names, Holds, Waiters, Calls, Places, Releases int

	Counters
}

// Counters count from the start of the client. They never go down, so that a monitoring
// system can take rates.
type Counters struct {
	Waits          int64
	WaitTime       time.Duration
	LocalHandovers int64
	PushedGrants   int64
	LostDeadline   int64
	LostFixed      int64
	LostMaxHold    int64
	LostGone       int64
	Renewals       int64
	StoreCalls     int64
	StoreErrors    int64
}

// Stats counts. It locks one shard after another, so its figures are not of one
// moment.
func (c *Client) Stats() (st Stats) {
	for i := range c.shards {
		sh := &c.shards[i]
		sh.mu.Lock()
		st.Names += len(sh.names)
		for _, n := range sh.names {
			st.Holds += int(n.storeHolds)
		}
		sh.mu.Unlock()
		st.Calls += sh.calls.Load()
	}
	st.Waiters = int(c.asking.Load() + c.waiters.Load())
	st.Calls += c.sender.Busy().Load()
	st.Places, st.Releases = c.sender.Listening(), c.sender.PendingReleases()
	st.Waits, st.WaitTime = c.waits.Load(), time.Duration(c.waitTime.Load())
	st.LocalHandovers, st.Renewals = c.handed.Load(), c.renewed.Load()
	for i, count := range []*int64{&st.LostDeadline, &st.LostFixed, &st.LostMaxHold, &st.LostGone} {
		*count = c.lost[i].Load()
	}
	st.StoreCalls, st.StoreErrors, st.PushedGrants = c.sender.Calls()
	return st
}

// countLoss counts a hold at the store that was lost.
func (c *Client) countLoss(cause error) { c.lost[slices.Index(lossCauses[:], cause)].Add(1) }

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
