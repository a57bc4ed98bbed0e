package core

import "time"

// Stats is what the client holds and does at one moment, and what it has done.
type Stats struct {
	Names, Holds, Waiters, Calls, Places, Releases int

	Counters
}

// Counters count from the start of the client.
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

// shardCounts are the counters that functions under the shard's mutex count.
type shardCounts struct {
	handovers                                  int64
	lostDeadline, lostFixed, lostMax, lostGone int64
}

// lose counts a loss.
func (k *shardCounts) lose(cause error) {
	switch cause {
	case ErrGone:
		k.lostGone++
	case ErrMaxHold:
		k.lostMax++
	case ErrFixedEnded:
		k.lostFixed++
	default:
		k.lostDeadline++
	}
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
		st.LocalHandovers += sh.counts.handovers
		st.LostDeadline += sh.counts.lostDeadline
		st.LostFixed += sh.counts.lostFixed
		st.LostMaxHold += sh.counts.lostMax
		st.LostGone += sh.counts.lostGone
		sh.mu.Unlock()
		st.Calls += sh.calls.Load()
	}
	st.Waiters = int(c.asking.Load() + c.waiters.Load())
	st.Calls += c.sender.Busy().Load()
	st.Places = c.sender.Listening()
	st.Releases = c.sender.PendingReleases()
	st.Waits, st.WaitTime = c.waits.Load(), time.Duration(c.waitTime.Load())
	st.Renewals = c.renewed.Load()
	st.StoreCalls, st.StoreErrors, st.PushedGrants = c.sender.Calls()
	return st
}
