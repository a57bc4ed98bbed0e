package core

import (
	"slices"
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
			st.Holds += len(n.granted)
		}
		sh.mu.Unlock()
		st.Calls += sh.calls.Load()
	}
	st.Waiters = int(c.asking.n.Load() + c.waiting.n.Load())
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
