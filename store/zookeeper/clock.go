package zookeeper

import (
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// maxDrift is how much faster or slower than the leader's clock this process's
// clock may be, as one in so many.
const maxDrift = 1000

// clock knows the leader's clock within bounds. Each write of this handle tells
// it: the time of modification that the leader gave the node is between the
// sending and the answer. The zero clock knows nothing. No wall clock of a client
// is used, and no time of one leader is compared with that of another.
type clock struct {
	mu sync.Mutex
	sample

	// anchor is the first time that this handle heard of the leader of epoch. All
	// that was written under earlier leaders was written before it.
	anchor time.Duration
	known  bool
}

// sample is one answer of a leader.
type sample struct {
	session   int64  // of the connection that it came by
	epoch     uint64 // of the leader
	at        time.Time
	low, high time.Duration // the leader's clock at that moment, since 1970
}

// present is what a clock knows at one moment.
type present struct {
	epoch     uint64
	low, high time.Duration
	anchor    time.Duration
}

// epochOf is the epoch of the leader that gave out a zxid. Each leader has its
// own, greater than those before.
func epochOf(zxid int64) uint64 { return uint64(zxid) >> 32 }

// observe takes the answer of a write that was sent at that time.
func (c *clock) observe(session int64, stat *zk.Stat, sent time.Time) {
	now := time.Now()
	written := time.Duration(stat.Mtime) * time.Millisecond
	s := sample{
		session: session, epoch: epochOf(stat.Mzxid), at: now,
		low:  written,
		high: written + time.Millisecond + now.Sub(sent), // mtime counts whole milliseconds
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.known || c.epoch != s.epoch:
		c.anchor = written
	case c.session == s.session:
		if low, high := c.bounds(now); s.high-s.low > high-low {
			return
		}
	}
	c.sample, c.known = s, true
}

// bounds is the leader's clock at that moment, as the sample tells it.
func (s *sample) bounds(now time.Time) (low, high time.Duration) {
	age := now.Sub(s.at)
	drift := age / maxDrift
	return s.low + age - drift, s.high + age + drift
}

// now returns the present. ok is false if the clock has to be asked first: it
// knows nothing of this session or of a leader as late as epoch, or not exactly
// enough.
func (c *clock) now(session int64, epoch uint64, within time.Duration) (p present, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p = present{epoch: c.epoch, anchor: c.anchor}
	p.low, p.high = c.bounds(time.Now())
	return p, c.known && c.session == session && c.epoch >= epoch && p.high-p.low <= within
}
