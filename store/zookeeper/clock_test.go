package zookeeper

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/model"
)

func statAt(epoch int64, written time.Duration) *zk.Stat {
	return &zk.Stat{Mzxid: epoch<<32 | 7, Mtime: written.Milliseconds()}
}

// TestClockBounds: the leader's clock is within the bounds, and they widen with
// the age of what is known.
func TestClockBounds(t *testing.T) {
	var c clock
	_, ok := c.now(0)
	assert.False(t, ok, "a clock that knows nothing")
	sent := time.Now().Add(-5 * time.Millisecond)
	c.observe(statAt(3, time.Hour), sent)
	p, ok := c.now(3)
	require.True(t, ok)
	assert.Equal(t, uint64(3), p.epoch)
	assert.GreaterOrEqual(t, p.low, time.Hour)
	assert.GreaterOrEqual(t, p.high-p.low, 6*time.Millisecond, "the answer took 5 ms, and mtime counts milliseconds")
	later := c.last.later(c.last.at.Add(10 * time.Second))
	assert.Equal(t, time.Hour+10*time.Second-100*time.Millisecond, later.low)
	assert.Equal(t, 200*time.Millisecond, later.high-later.low-(c.last.high-c.last.low))

	for name, ask := range map[string]func() (present, bool){
		"a later leader": func() (present, bool) { return c.now(4) },
		"a long silence": func() (present, bool) {
			c.last.at = c.last.at.Add(-time.Minute)
			return c.now(3)
		},
	} {
		_, ok := ask()
		assert.False(t, ok, name)
	}
}

// TestClockKeepsTheBestSample: a slow answer does not replace an exact one of the
// same leader, and any answer of another leader does.
func TestClockKeepsTheBestSample(t *testing.T) {
	var c clock
	c.observe(statAt(3, time.Hour), time.Now())
	c.observe(statAt(3, time.Hour-time.Minute/2), time.Now().Add(-time.Minute))
	p, _ := c.now(3)
	assert.Less(t, p.high-p.low, 30*time.Second)
	c.observe(statAt(4, time.Minute), time.Now().Add(-time.Second))
	p, _ = c.now(4)
	assert.Equal(t, uint64(4), p.epoch)
	assert.Equal(t, time.Minute, p.low.Truncate(time.Second))
}

// TestClockThatWasSet: an answer that contradicts the sample replaces it, in either
// direction and however slow it was. A slow answer that agrees confirms it.
func TestClockThatWasSet(t *testing.T) {
	for _, set := range []time.Duration{-time.Minute, time.Minute} {
		var c clock
		c.observe(statAt(3, time.Hour), time.Now())
		slow := &zk.Stat{Mzxid: 3<<32 | 9, Mtime: (time.Hour - time.Second).Milliseconds()}
		c.observe(slow, time.Now().Add(-2*time.Second))
		p, _ := c.now(3)
		assert.Less(t, p.high-p.low, time.Second)
		assert.Equal(t, slow.Mzxid, p.zxid)

		c.observe(statAt(3, time.Hour+set), time.Now().Add(-2*time.Second))
		p, _ = c.now(3)
		assert.GreaterOrEqual(t, p.low, time.Hour+set)
		assert.Less(t, p.low, time.Hour+set+30*time.Second)
	}
}

// TestClockHeardLately: an answer that is less exact than the sample counts as one.
func TestClockHeardLately(t *testing.T) {
	var c clock
	c.observe(statAt(3, time.Hour), time.Now())
	c.last.at = c.last.at.Add(-time.Minute)
	_, ok := c.now(3)
	assert.False(t, ok)
	c.observe(statAt(3, time.Hour+59*time.Second), time.Now().Add(-2*time.Second))
	_, ok = c.now(3)
	assert.True(t, ok)
}

// TestClockForgetsOldAnswers: what an answer tells does not outlive maxAge. Clocks that
// differed for so long may be further apart than a slow answer shows.
func TestClockForgetsOldAnswers(t *testing.T) {
	var c clock
	c.observe(statAt(3, time.Hour), time.Now())
	c.last.at = c.last.at.Add(-4 * time.Minute)
	behind := time.Hour + 4*time.Minute - 4*time.Second // a clock that runs 1.7 % slower
	c.observe(statAt(3, behind), time.Now().Add(-3*time.Second))
	p, ok := c.now(3)
	require.True(t, ok)
	assert.Less(t, p.low, behind+time.Second)
}

// held is a node with one hold that ends ttl after now on the clock of epoch.
func held(epoch uint64, now, ttl time.Duration) *snapshot {
	n := &snapshot{room: "abcdefghijkl", epoch: epoch, now: now, zxid: int64(epoch)<<32 | 5, written: now + 3*time.Millisecond}
	n.body = model.EncodeHold(nil, store.Request{Name: "x", ID: "id", Owner: "o", Tokens: 1, TTL: ttl}, "h", provisional+2, 0, now)
	return n
}

// TestLeadersWithDifferentClocks: under another leader, whatever its clock says, a
// hold lasts for what it had left, counted from the present. Under its own it ends at
// its deadline.
func TestLeadersWithDifferentClocks(t *testing.T) {
	const now, ttl = 1000 * time.Hour, 10 * time.Second
	n := held(3, now, ttl)
	r, err := n.record(present{epoch: 3, low: now})
	require.NoError(t, err)
	assert.Equal(t, now+ttl, r.Expires())
	token, _, _ := r.Hold("id")
	assert.Equal(t, uint64(3<<32|5)<<tokenBits+2, token, "a provisional token becomes that of its transaction")

	for _, low := range []time.Duration{now - time.Hour, now + time.Hour} {
		r, err := n.record(present{epoch: 4, low: low})
		require.NoError(t, err)
		assert.Equal(t, low+ttl, r.Expires())
	}

	// Decided by the clock of leader 3, written under leader 4.
	n.zxid, n.written = 4<<32|1, now-time.Hour
	r, err = n.record(present{epoch: 4, low: n.written + time.Minute})
	require.NoError(t, err)
	assert.Equal(t, now-time.Hour+ttl, r.Expires())
}

// TestTokensOfOneWrite: a write issues no more tokens than lie between two zxids,
// and leaves some for a request that is granted with it.
func TestTokensOfOneWrite(t *testing.T) {
	c := &counter{last: 17}
	assert.Equal(t, uint64(17), c.Last())
	first, n := c.Issue(1 << 20)
	assert.Equal(t, uint64(provisional), first)
	assert.Equal(t, tokensPerWrite/2, n)
	for range 100 {
		first, n = c.Issue(1 << 20)
	}
	assert.True(t, c.ranOut)
	assert.Zero(t, n)
	assert.Zero(t, first)
	assert.Equal(t, uint64(provisional+tokensPerWrite-1), c.Last())
	assert.Less(t, final(provisional+tokensPerWrite-1, 9), final(provisional, 10))
}

// FuzzNode: no data of a node makes decode panic, and what is none of this
// package's is foreign.
func FuzzNode(f *testing.F) {
	f.Add(held(3, time.Hour, time.Second).encode())
	f.Add([]byte("dlz\x02"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var n snapshot
		if err := n.decode(data); err != nil && !errors.Is(err, store.ErrForeignKey) {
			t.Errorf("got %v, want ErrForeignKey", err)
		} else if err == nil {
			again := snapshot{}
			require.NoError(t, again.decode(n.encode()))
			assert.Equal(t, n, again)
		}
	})
}

// FuzzNames: each name has a node of its own, which tells the name.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"a", "a/b", "..", "%41", "\x00\xff", "ä"} {
		f.Add(name)
	}
	s := &Store{root: "/r"}
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" {
			return
		}
		node := s.namePath(name)[len("/r"+locksFolder+"/"):]
		got, ok := nameOf(node)
		if !ok || got != name {
			t.Errorf("node %q: got %q, %v, want %q", node, got, ok, name)
		}
	})
}

// TestNamesOfOtherPrograms: a node is a name's only if the name has that node.
func TestNamesOfOtherPrograms(t *testing.T) {
	for _, node := range []string{"%61", "%2f", "%2", "%", "%zz", "%+1", "a.b", "a b"} {
		_, ok := nameOf(node)
		assert.False(t, ok, node)
	}
}
