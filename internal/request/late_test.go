package request

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
)

// waits returns a request that asks again in a minute, and its store.
func waits(t *testing.T, then func(Answer)) (*Request, *asks) {
	s, r := &asks{Store: memory.New()}, new(Request)
	d := NewSender(s, slog.New(slog.DiscardHandler).Warn)
	t.Cleanup(d.StopAcquires)
	r.Init(d, &Config{TTL: time.Hour, WaitTTL: time.Hour, Timeout: time.Minute}, store.Request{Name: "m", ID: "id", Owner: "owner", Queue: true, Tokens: 1})
	r.Poll(Answer{Outcome: Queued, Retry: time.Minute}, then)
	return r, s
}

// A firing of the timer that comes before the planned moment, as the timer was set again meanwhile, asks nothing.
func TestFiringBeforeThePlannedMoment(t *testing.T) {
	r, s := waits(t, func(Answer) {})
	r.onTimer()
	assert.Zero(t, r.Standing())
	assert.Zero(t, s.n.Load(), "it was sent")
	r.Abandon()
}

// An event that was on its way when its request was abandoned changes nothing.
func TestEventAfterTheEnd(t *testing.T) {
	told := 0
	r, s := waits(t, func(Answer) { told++ })
	r.Abandon()
	r.onEvent(store.Event{ID: r.ID(), Token: 9})
	assert.Zero(t, r.Standing())
	assert.Zero(t, told)
	assert.Equal(t, abandoned, r.phase)
	assert.Zero(t, r.poll.wish, "it wishes to be sent")
	assert.Zero(t, s.n.Load())
}

// An event that was on its way when its request was granted by another one tells nothing more.
func TestEventAfterTheGrant(t *testing.T) {
	told := 0
	r, _ := waits(t, func(Answer) { told++ })
	r.onEvent(store.Event{ID: r.ID(), Token: 9})
	r.onEvent(store.Event{ID: r.ID(), Token: 10})
	assert.Equal(t, 1, told)
	r.Abandon()
}

// A deadline that its last user has left has ended, and takes no other user.
func TestFreedDeadlineTakesNoUser(t *testing.T) {
	freed := false
	d := &deadline{free: func() { freed = true }}
	d.users.Store(1)
	assert.True(t, d.join())
	d.leave()
	assert.False(t, freed)
	d.leave()
	assert.True(t, freed)
	assert.False(t, d.join())
}

// Calls that begin at one moment share a deadline, and leave it when they end, also if their callers may cancel.
func TestCallsLeaveTheirDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bound{Context: t.Context()}
		begin := func() *callContext {
			c := call(t.Context(), b, time.Now(), time.Minute)
			assert.NotNil(t, c.Done())
			return c
		}
		users := func() int { return int(b.latest.Load().users.Load()) }
		one, other := begin(), begin()
		assert.Equal(t, 3, users(), "two calls and the bound")
		for i, c := range []*callContext{one, other} {
			assert.NoError(t, c.end(new(Sender), nil))
			assert.Equal(t, 2-i, users())
			assert.ErrorIs(t, c.Err(), context.Canceled)
		}
	})
}
