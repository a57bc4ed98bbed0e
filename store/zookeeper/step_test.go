package zookeeper

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/store"
)

// knows returns a handle without a server, whose clock has one answer.
func knows(epoch int64, written time.Duration, sent time.Time) *Store {
	s := &Store{conn: new(zk.Conn)}
	s.clock.observe(statAt(epoch, written), sent)
	return s
}

// decided returns the step of a request on a snapshot.
func decided(t *testing.T, s *Store, old *snapshot, req store.Request) (*step, store.Grant, error) {
	t.Helper()
	st, err := s.decide(old)
	require.NoError(t, err)
	g, err := st.record.Acquire(&st.call, req, "handle")
	return st, g, err
}

func asks(id, owner string) store.Request {
	return store.Request{Name: "x", ID: id, Owner: owner, Tokens: 1, TTL: 10 * time.Second, WaitTTL: 10 * time.Second}
}

// TestDeadlinesUnderANewLeaderAreWritten: a refusal and a repeated request write the
// deadlines that they were decided by. Otherwise each handle has deadlines of its own.
func TestDeadlinesUnderANewLeaderAreWritten(t *testing.T) {
	const now, ttl = 1000 * time.Hour, 10 * time.Second
	for name, req := range map[string]store.Request{"refused": asks("other", "p"), "repeated": asks("id", "o")} {
		s := knows(4, time.Hour, time.Now())
		old := held(3, now, ttl+time.Second)
		st, _, _ := decided(t, s, old, req)
		require.True(t, st.changes(nil), name)
		assert.Equal(t, old.room, st.next.room, name)

		n := *st.next
		n.zxid, n.written = 4<<32|9, n.now+time.Millisecond
		later, err := n.record(present{epoch: 4, low: n.now + time.Minute})
		require.NoError(t, err)
		assert.Equal(t, n.now+ttl+time.Second, later.Expires(), "%s: the end for another handle", name)

		st, _, _ = decided(t, s, &n, asks("other", "p"))
		assert.False(t, st.changes(nil), "%s: under the same leader a refusal writes nothing", name)
	}
}

// TestLateIfTheClockWentForward: a new hold whose deadline was computed from too early
// a time has to be decided again.
func TestLateIfTheClockWentForward(t *testing.T) {
	s := knows(3, time.Hour, time.Now())
	st, g, err := decided(t, s, new(snapshot), asks("id", "o"))
	require.NoError(t, err)
	require.True(t, g.Held)
	require.True(t, st.changes(nil))
	st.next.zxid, st.next.written = 3<<32|9, st.call.Now
	assert.False(t, st.late(), "the time that was expected")
	st.next.written = time.Hour + time.Minute
	assert.True(t, st.late(), "a minute later than expected")
}

// TestLateIfTheClockWentBack: a grant in place of a hold that passed for dead is decided
// again, on a clock that knows better by then.
func TestLateIfTheClockWentBack(t *testing.T) {
	const ahead = time.Second
	s := knows(3, time.Hour+ahead, time.Now())
	old := held(3, time.Hour-10*time.Second, 10*time.Second+ahead/2)
	s.clock.last.zxid = old.zxid + 1
	st, g, err := decided(t, s, old, asks("other", "p"))
	require.NoError(t, err)
	require.True(t, g.Held, "the hold passes for dead")
	require.True(t, st.changes(nil))
	st.next.zxid, st.next.written = old.zxid+2, time.Hour
	require.True(t, st.late())
	s.clock.observe(statAt(3, time.Hour), time.Now())
	_, _, err = decided(t, s, old, asks("other", "p"))
	assert.ErrorIs(t, err, store.ErrHeld)

	// A record that was written before the clock was set back is from the future. That alone makes no step late.
	old = held(3, 2*time.Hour, 10*time.Second)
	s.clock.last.zxid = old.zxid + 1
	st, g, err = decided(t, s, old, asks("id", "o"))
	require.NoError(t, err)
	require.True(t, g.Held)
	require.True(t, st.changes(nil))
	st.next.zxid, st.next.written = old.zxid+2, time.Hour
	assert.False(t, st.late())
}

// TestLateCountsFromTheClock: what a step does before it decides, such as to decode a
// large record, makes no step late.
func TestLateCountsFromTheClock(t *testing.T) {
	s := knows(3, time.Hour, time.Now())
	before := time.Now()
	p, ok := s.clock.now(3)
	require.True(t, ok)
	assert.False(t, p.at.Before(before))
	assert.Equal(t, s.clock.last.later(p.at), p)

	st, _, err := decided(t, s, new(snapshot), asks("id", "o"))
	require.NoError(t, err)
	p = s.clock.last.later(st.began)
	assert.Equal(t, p.low, st.call.Now)
	assert.Equal(t, p.high-p.low, st.slack)
}

// TestNodesOfWaiters: a transaction makes and deletes the nodes of those requests that
// begin to wait and that wait no more.
func TestNodesOfWaiters(t *testing.T) {
	s := knows(3, time.Hour, time.Now())
	old := held(3, time.Hour-time.Minute, 50*time.Second)
	waits, another := asks("waits", "p"), asks("another", "q")
	waits.Queue, another.Queue = true, true
	waits.WaitTTL, another.WaitTTL = time.Hour, time.Hour
	st, err := s.decide(old)
	require.NoError(t, err)
	st.call.Now = time.Hour - time.Minute
	st.record, _, err = old.at(present{epoch: 3, low: st.call.Now})
	require.NoError(t, err)
	for _, req := range []store.Request{waits, another} {
		_, err = st.record.Acquire(&st.call, req, "handle")
		require.NoError(t, err)
	}
	require.True(t, st.changes(nil))
	assert.Equal(t, []string{"waits", "another"}, missing(st.next.queue, old.queue))
	st.next.zxid = old.zxid

	s.clock.last.zxid = old.zxid
	promoted, g, err := decided(t, s, st.next, waits)
	require.NoError(t, err)
	require.True(t, g.Held)
	require.True(t, promoted.changes(nil))
	assert.Equal(t, []string{"waits"}, missing(st.next.queue, promoted.next.queue))
	assert.Empty(t, missing(promoted.next.queue, st.next.queue))
}

// TestReplacesALateStep: a repeated step writes over what the late one has written,
// also if it changes nothing in the record that both were decided on.
func TestReplacesALateStep(t *testing.T) {
	s := knows(3, time.Hour, time.Now())
	old := held(3, time.Hour, time.Minute)
	late := &snapshot{room: old.room, version: 8, queue: []string{"waits"}}
	st, _, err := decided(t, s, old, asks("other", "p"))
	require.ErrorIs(t, err, store.ErrHeld)
	require.True(t, st.changes(late))
	assert.Same(t, late, st.old)
	assert.Equal(t, old.room, st.next.room)
	assert.Empty(t, st.next.queue)
}

// TestSlowAnswers: while answers are slow, a step does not ask for the clock again.
func TestSlowAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := knows(3, time.Hour, time.Now().Add(-time.Second))
		done := make(chan error, 1)
		go func() { _, err := s.present(0); done <- err }()
		synctest.Wait()
		select {
		case err := <-done:
			assert.NoError(t, err)
		default:
			t.Error("the step waits for the clock")
		}
	})
}
