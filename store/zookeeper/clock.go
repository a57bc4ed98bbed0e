package zookeeper

import (
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// maxDrift is how much faster or slower than the leader's clock this process's
// clock may be, as one in so many.
const maxDrift = 1000

const (
	// maxAsks bounds how often the leader is asked for its clock in one step.
	maxAsks = 3

	// exactly is how exactly the leader's clock has to be known, unless answers are
	// slow.
	exactly = 25 * time.Millisecond
)

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

// sample is what is known since the last answer of a leader.
type sample struct {
	session   int64  // of the connection that the answer came by
	epoch     uint64 // of the leader
	zxid      int64  // of the last write that was answered
	at        time.Time
	low, high time.Duration // the leader's clock at that moment, since 1970
}

// present is what a clock knows at one moment.
type present struct {
	epoch     uint64
	zxid      int64 // the leader's clock has not been set between the sample and this write
	at        time.Time
	low, high time.Duration // the leader's clock at that moment
	anchor    time.Duration
}

// epochOf is the epoch of the leader that gave out a zxid. Each leader has its
// own, greater than those before.
func epochOf(zxid int64) uint64 { return uint64(zxid) >> 32 }

// observe takes the answer of a write that was sent at that time. What the answers
// before it tell counts as well, unless the two contradict: the leader's clock was
// set then.
func (c *clock) observe(session int64, stat *zk.Stat, sent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	written := time.Duration(stat.Mtime) * time.Millisecond
	s := sample{
		session: session, epoch: epochOf(stat.Mzxid), zxid: stat.Mzxid, at: now,
		low:  written,
		high: written + time.Millisecond + now.Sub(sent), // mtime counts whole milliseconds
	}
	switch {
	case !c.known || c.epoch != s.epoch:
		c.anchor = written
	case c.session == s.session:
		low, high := c.bounds(now)
		if s.low <= high && s.high >= low {
			s.zxid, s.low, s.high = max(c.zxid, s.zxid), max(low, s.low), min(high, s.high)
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
// enough. Asking within a second of the last answer would not make it known more
// exactly: answers are slow. Leases are longer then rather than calls.
func (c *clock) now(session int64, epoch uint64) (p present, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p = present{epoch: c.epoch, zxid: c.zxid, at: time.Now(), anchor: c.anchor}
	p.low, p.high = c.bounds(p.at)
	exact := p.high-p.low <= exactly || p.at.Sub(c.at) < time.Second
	return p, c.known && c.session == session && c.epoch >= epoch && exact
}

// present returns the present by a clock that knows the leader that wrote the zxid,
// or a later one. It asks the leader if the clock does not know.
func (s *Store) present(zxid int64) (present, error) {
	for n := 0; ; n++ {
		p, ok := s.clock.now(s.conn.SessionID(), epochOf(zxid))
		if ok {
			return p, nil
		}
		if n == maxAsks {
			return p, errNoClock
		}
		if err := s.askClock(); err != nil {
			return p, err
		}
	}
}

// askClock writes a node, so that the leader tells its time.
func (s *Store) askClock() error {
	sent, session := time.Now(), s.conn.SessionID()
	stat, err := s.conn.Set(s.root+clockNode, nil, -1)
	if err == zk.ErrNoNode { // the ensemble has lost its data
		if err = s.makeFolders(); err == nil {
			stat, err = s.conn.Set(s.root+clockNode, nil, -1)
		}
	}
	if err != nil {
		return outcome(err)
	}
	s.clock.observe(session, stat, sent)
	new(snapshot).wrote(s, stat)
	return nil
}
