package zookeeper

import (
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	// maxDrift is how much faster or slower than the leader's clock this process's
	// clock may be, as one in so many. The documents allow clocks to be slewed by that.
	maxDrift = 100

	// maxAge is how old what is known of the leader's clock may be. The drift makes an
	// older answer too inexact for short leases.
	maxAge = 10 * time.Second
)

// clock knows the leader's clock within bounds. Each write of this handle tells
// it: the time of modification that the leader gave the node is between the
// sending and the answer. The zero clock knows nothing. No wall clock of a client
// is used, and no time of one leader is compared with that of another.
type clock struct {
	mu   sync.Mutex
	last present
}

// present is what a clock knows at one moment.
type present struct {
	epoch     uint64 // of the leader
	zxid      int64  // of the last write that was answered
	at        time.Time
	low, high time.Duration // the leader's clock at that moment, since 1970
}

// epochOf is the epoch of the leader that gave out a zxid. Each leader has its
// own, greater than those before.
func epochOf(zxid int64) uint64 { return uint64(zxid) >> 32 }

// later is what the same answers tell at a later moment.
func (p present) later(now time.Time) present {
	age := now.Sub(p.at)
	drift := age / maxDrift
	p.at, p.low, p.high = now, p.low+age-drift, p.high+age+drift
	return p
}

// observe takes the answer of a write that was sent at that time. What the answers
// of the last maxAge tell counts as well, unless the two contradict: the leader's clock
// was set then.
func (c *clock) observe(stat *zk.Stat, sent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	low := time.Duration(stat.Mtime) * time.Millisecond
	high := low + time.Millisecond + now.Sub(sent) // mtime counts whole milliseconds
	p := present{epoch: epochOf(stat.Mzxid), zxid: stat.Mzxid, at: now, low: low, high: high}
	before, late := c.last.later(now), now.Sub(c.last.at) > maxAge
	if !late && before.epoch == p.epoch && before.low <= high && before.high >= low {
		p.zxid, p.low, p.high = max(before.zxid, p.zxid), max(before.low, low), min(before.high, high)
	}
	c.last = p
}

// now returns the present. ok is false if the clock has to be asked first: it has not
// heard of a leader as late as epoch, or not lately.
func (c *clock) now(epoch uint64) (p present, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	return c.last.later(now), c.last.epoch >= epoch && now.Sub(c.last.at) <= maxAge
}

// present returns the present by a clock that knows the leader that wrote the zxid,
// or a later one. It asks the leader if the clock does not know.
func (s *Store) present(zxid int64) (present, error) {
	if p, ok := s.clock.now(epochOf(zxid)); ok {
		return p, nil
	}
	if err := s.askClock(); err != nil {
		return present{}, err
	}
	p, _ := s.clock.now(0)
	return p, nil
}

// askClock writes a node, so that the leader tells its time.
func (s *Store) askClock() error {
	sent := time.Now()
	stat, err := s.conn.Set(s.root+clockNode, nil, -1)
	if err == zk.ErrNoNode { // an operator has deleted it
		if err = s.makeFolders(); err == nil {
			stat, err = s.conn.Set(s.root+clockNode, nil, -1)
		}
	}
	if err != nil {
		return outcome(err)
	}
	s.clock.observe(stat, sent)
	return nil
}
