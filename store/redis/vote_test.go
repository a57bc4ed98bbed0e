package redis_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/dlock-go/dlock/store/quorum"
	"github.com/dlock-go/dlock/store/redis"
)

// TestVote: one call grants, gives the proposed token where that is allowed, and says the life.
func TestVote(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	ask := func(name, owner string) store.Request {
		id := make([]byte, 16)
		rand.Read(id)
		return store.Request{Name: name, Owner: owner, ID: hex.EncodeToString(id), TTL: time.Minute, WaitTTL: time.Minute, Tokens: 10}
	}
	vote := func(r store.Request, token uint64) store.Vote {
		t.Helper()
		v, err := s.Vote(bounded(t), r, token)
		require.NoError(t, err)
		return v
	}
	now := uint64(time.Now().Add(time.Hour).UnixMicro())
	counted := ask("n", "z")
	require.Less(t, vote(counted, now).Grant.Token, now, "a lost counter takes no token from elsewhere")
	require.NoError(t, s.Release(bounded(t), locktest.RefTo(counted)))
	first := ask("n", "a")
	v := vote(first, now)
	require.Equal(t, store.Grant{Held: true, Token: now, TTL: v.Grant.TTL, Holds: 1}, v.Grant)
	life, _, err := s.Incarnation(bounded(t))
	require.NoError(t, err)
	require.Equal(t, life, v.Life)
	require.NoError(t, v.Err)
	require.InDelta(t, float64(time.Now().UnixMicro()), float64(v.Clock), float64(time.Minute.Microseconds()))

	require.Equal(t, now, vote(first, 0).Grant.Token, "a repeated request that proposes nothing")
	require.Equal(t, now, vote(first, now-1).Grant.Token, "a token that the hold has passed")
	again := ask("n", "a")
	require.Equal(t, now, vote(again, now+1000).Grant.Token, "a re-entry")
	waiting := ask("n", "b")
	waiting.Queue = true
	v = vote(waiting, now+1000)
	require.False(t, v.Grant.Held)
	require.Equal(t, 1, v.Grant.Position)
	_, err = s.Vote(bounded(t), ask("n", "b"), now+1000)
	require.ErrorIs(t, err, store.ErrHeld)
	require.NoError(t, s.Release(bounded(t), locktest.RefTo(waiting)))
	require.NoError(t, s.Release(bounded(t), locktest.RefTo(again)))
	require.NoError(t, s.Release(bounded(t), locktest.RefTo(first)))
	late := vote(ask("n", "c"), now+9)
	require.Greater(t, late.Grant.Token, now+9, "a token that was reserved before")

	writer := ask("r", "z")
	vote(writer, 0)
	require.NoError(t, s.Release(bounded(t), locktest.RefTo(writer)))
	reader := ask("r", "a")
	reader.Mode = store.Shared
	require.Equal(t, now+5000, vote(reader, now+5000).Grant.Token)
	state, err := s.Inspect(bounded(t), "r")
	require.NoError(t, err)
	require.Equal(t, now+5009, state.Token, "the span is reserved")
	other := ask("r", "b")
	other.Mode = store.Shared
	require.NotEqual(t, now+5000, vote(other, now+5000).Grant.Token, "two readers have one token")

	former := ask("b", "a")
	vote(former, 0)
	require.NoError(t, s.Release(bounded(t), locktest.RefTo(former)))
	gone := locktest.RefTo(ask("b", "a"))
	gone.Bury = true
	require.ErrorIs(t, s.Release(bounded(t), gone), store.ErrLost)
	require.Equal(t, now+9000, vote(ask("b", "b"), now+9000).Grant.Token, "a name with a buried id")
}

// TestVoteThatGrantsTwo: the second of two readers that a vote finds due has a token by the clock, which is ahead of
// the proposed one. The counter is not behind it afterwards, or a later reader would get the same token.
func TestVoteThatGrantsTwo(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t).URL())
	writer := want("n", 1)
	writer.TTL = 3 * time.Second
	g, err := s.Acquire(bounded(t), writer)
	require.NoError(t, err)
	readers := []store.Request{want("n", 2), want("n", 3)}
	for i := range readers {
		readers[i].Mode, readers[i].Queue = store.Shared, true
		readers[i].TTL, readers[i].WaitTTL = time.Minute, time.Minute
		queued, err := s.Acquire(bounded(t), readers[i])
		require.NoError(t, err)
		require.False(t, queued.Held)
	}
	time.Sleep(writer.TTL + 100*time.Millisecond) // its lease ends
	v, err := s.Vote(bounded(t), readers[0], g.Token+1)
	require.NoError(t, err)
	require.Equal(t, g.Token+1, v.Grant.Token)
	state, err := s.Inspect(bounded(t), "n")
	require.NoError(t, err)
	require.Len(t, state.Holders, 2)
	last := max(state.Holders[0].Token, state.Holders[1].Token)
	require.Greater(t, last, v.Grant.Token)
	require.GreaterOrEqual(t, state.Token, last, "the token counter")
}

// counted counts the second rounds that a server takes part in.
type counted struct {
	*redis.Store
	raised atomic.Int64
}

func (c *counted) RaiseToken(ctx context.Context, ref store.Ref, token uint64, tokens int) (uint64, error) {
	c.raised.Add(1)
	return c.Store.RaiseToken(ctx, ref, token, tokens)
}

// TestQuorumGrantTakesOneRound: the servers give the tokens that are proposed to them. One of three is
// down, so that no answer comes late.
func TestQuorumGrantTakesOneRound(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 2)
	a, b := &counted{Store: open(t, m.servers[0].URL())}, &counted{Store: open(t, m.servers[1].URL())}
	down := faultstore.New(memory.New())
	down.Outage(faultstore.DropRequest())
	q, err := quorum.NewWithOptions(&quorum.Options{Durable: true, NodeTimeout: 20 * time.Second}, a, b, down)
	require.NoError(t, err)
	t.Cleanup(func() { q.Close() })
	round := func() {
		r := m.request("n")
		r.TTL, r.WaitTTL, r.Tokens = time.Hour, time.Hour, 100
		require.Zero(t, m.hold(q, r).Short)
		require.NoError(t, q.Release(t.Context(), quorumRef(r)))
	}
	round() // a counter that is lost, or was never there, takes no token from elsewhere
	a.raised.Store(0)
	b.raised.Store(0)
	for range 20 {
		round()
	}
	require.Zero(t, a.raised.Load()+b.raised.Load(), "calls in second rounds")
}
