package zookeeper

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/model"
)

// knows returns a handle without a server, whose clock has one answer.
func knows(epoch int64, written time.Duration, sent time.Time) *Store {
	s := &Store{conn: new(zk.Conn)}
	s.clock.observe(0, statAt(epoch, written), sent)
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
		require.True(t, s.changes(st), name)
		assert.Equal(t, old.room, st.next.room, name)

		n := *st.next
		n.zxid, n.written = 4<<32|9, n.now+time.Millisecond
		later, err := n.record(present{epoch: 4, low: n.now, anchor: time.Hour + time.Minute})
		require.NoError(t, err)
		assert.Equal(t, time.Hour+ttl+time.Second, later.Expires(), "%s: the end for another handle", name)

		st, _, _ = decided(t, s, &n, asks("other", "p"))
		assert.False(t, s.changes(st), "%s: under the same leader a refusal writes nothing", name)
	}
}

// TestLateIfTheClockWentForward: a new hold whose deadline was computed from too early
// a time has to be decided again.
func TestLateIfTheClockWentForward(t *testing.T) {
	s := knows(3, time.Hour, time.Now())
	st, g, err := decided(t, s, new(snapshot), asks("id", "o"))
	require.NoError(t, err)
	require.True(t, g.Held)
	require.True(t, s.changes(st))
	st.next.zxid, st.next.written = 3<<32|9, st.call.Now
	assert.False(t, st.late(), "the time that was expected")
	st.next.written = time.Hour + time.Minute
	assert.True(t, st.late(), "a minute later than expected")
}

// TestLateCountsFromTheClock: what a step does before it decides, such as to decode a
// large record, makes no step late.
func TestLateCountsFromTheClock(t *testing.T) {
	s := knows(3, time.Hour, time.Now())
	before := time.Now()
	p, ok := s.clock.now(0, 3)
	require.True(t, ok)
	assert.False(t, p.at.Before(before))
	low, _ := s.clock.bounds(p.at)
	assert.Equal(t, low, p.low)

	st, _, err := decided(t, s, new(snapshot), asks("id", "o"))
	require.NoError(t, err)
	low, high := s.clock.bounds(st.began)
	assert.Equal(t, low, st.call.Now)
	assert.Equal(t, high-low, st.slack)
}

// TestDeadlinesOfARepeatedStep: what had expired when the late step was written does
// not make the repeated one late.
func TestDeadlinesOfARepeatedStep(t *testing.T) {
	const now = time.Hour
	s := knows(3, now, time.Now())
	st, _, _ := decided(t, s, held(3, now, time.Second), asks("id", "o"))
	require.Equal(t, now+time.Second, st.ends)
	st.raise(now + time.Minute)
	assert.Equal(t, now+time.Minute, st.call.Now)
	assert.Equal(t, now+time.Minute, st.next.now)
	assert.Greater(t, st.ends, now+time.Minute)
	st.raise(now)
	assert.Equal(t, now+time.Minute, st.call.Now, "never earlier")
}

// TestVanishedWakeNodes: if one node of a waiter is gone, the others are deleted after
// the transaction, so that each that is gone does not cost a transaction.
func TestVanishedWakeNodes(t *testing.T) {
	w := wakeChanges{deleted: []string{"a", "b", "c"}, created: "d"}
	w.postpone(0)
	assert.Empty(t, w.deleted)
	assert.Equal(t, []string{"a", "b", "c"}, w.later)
	assert.Equal(t, "d", w.created)
}

// TestOneDeletionOfAWakeNode: a request that is promoted when it asks again is a
// waiter of the step and the one that asks, and has one node.
func TestOneDeletionOfAWakeNode(t *testing.T) {
	s := knows(3, time.Hour, time.Now())
	s.wakes = map[string]*wake{"waits": {}}
	old := held(3, time.Hour-time.Minute, 50*time.Second)
	r, _, err := old.at(present{epoch: 3, low: time.Hour - time.Minute})
	require.NoError(t, err)
	waits := asks("waits", "p")
	waits.Queue, waits.WaitTTL = true, time.Hour
	_, err = r.Acquire(&model.Call{Now: time.Hour - time.Minute, Tokens: &counter{}}, waits, "handle")
	require.NoError(t, err)
	old.body, err = r.AppendBinary(nil)
	require.NoError(t, err)

	s.clock.zxid = old.zxid
	st, g, err := decided(t, s, old, waits)
	require.NoError(t, err)
	require.True(t, g.Held)
	s.waitsNot(st, waits.ID)
	require.True(t, s.changes(st))
	assert.Len(t, st.call.Events, 1)
	assert.Equal(t, []string{"waits"}, st.wakes.deleted)
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
