package redis_test

import (
	"crypto/rand"
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/quorum"
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
	require.NoError(t, s.Release(bounded(t), refOf(counted)))
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
	require.NoError(t, s.Release(bounded(t), refOf(waiting)))
	require.NoError(t, s.Release(bounded(t), refOf(again)))
	require.NoError(t, s.Release(bounded(t), refOf(first)))
	late := vote(ask("n", "c"), now+9)
	require.Greater(t, late.Grant.Token, now+9, "a token that was reserved before")

	writer := ask("r", "z")
	vote(writer, 0)
	require.NoError(t, s.Release(bounded(t), refOf(writer)))
	reader := ask("r", "a")
	reader.Mode = store.Shared
	require.Equal(t, now+5000, vote(reader, now+5000).Grant.Token)
	state, err := s.Inspect(bounded(t), "r")
	require.NoError(t, err)
	require.Equal(t, now+5009, state.Token, "the span is reserved")
	other := ask("r", "b")
	other.Mode = store.Shared
	require.NotEqual(t, now+5000, vote(other, now+5000).Grant.Token, "two readers have one token")
}

// TestQuorumGrantTakesOneRound: the servers give the tokens that are proposed to them, so that a
// grant mostly takes as long as their answers, and not twice as long.
func TestQuorumGrantTakesOneRound(t *testing.T) {
	t.Parallel()
	const delay = 200 * time.Millisecond
	m := startMasters(t, 3)
	proxies, behind := m.proxies()
	q := quorumOver(t, quorum.Options{Durable: true, NodeTimeout: 20 * time.Second}, behind...)
	round := func() time.Duration {
		r := m.request("n")
		r.TTL, r.WaitTTL = time.Hour, time.Hour
		start := time.Now()
		m.hold(q, r)
		took := time.Since(start)
		require.NoError(t, q.Release(t.Context(), quorumRef(r)))
		return took
	}
	for range 5 {
		round()
	}
	for _, p := range proxies {
		p.Delay(delay)
	}
	quick := 0
	for range 8 {
		if took := round(); took < 2*delay {
			quick++
		}
	}
	require.GreaterOrEqual(t, quick, 4, "grants within less than two rounds, of 8")
}
