package redis_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// The counter is far ahead of the clock, or near its end, where numbers have
// more digits than Lua prints. Tokens are exact and grow by what was asked for.
// At the end there are no more: a typed error, also for who waits already,
// while holds are renewed and released as ever.
func TestFault87TokensNearTheirLimit(t *testing.T) {
	t.Parallel()
	const limit = 1 << 53
	server := redistest.Start(t)
	p := startProgram(t, server.URL())
	// ask returns the token of the next lock, straight from the store. There is no
	// more than one where the counter is ahead of the clock.
	ids := 0
	ask := func(name string, tokens int) (uint64, error) {
		ids++
		r := want(name, ids)
		r.Tokens = tokens
		g, err := p.store.Acquire(bounded(t), r)
		if err == nil {
			require.True(t, g.Held)
			require.Equal(t, tokens-1, g.Short)
			require.NoError(t, p.store.Release(bounded(t), of(r)))
		}
		return g.Token, err
	}
	preset := func(name string, last uint64) {
		server.MustDo("SET", redis.KeysOf(name)[0], strconv.FormatUint(last, 10))
	}

	for _, last := range []uint64{0, 1, 99_999, 100_000_000_000_000, 999_999_999_999_999, 1_000_000_000_000_000} {
		preset("behind", last)
		before := uint64(time.Now().UnixMicro())
		token, err := ask("behind", 1)
		require.NoError(t, err)
		require.WithinRange(t, time.UnixMicro(int64(token)), time.UnixMicro(int64(before)), time.Now(), "preset to %d", last)
	}
	for _, last := range []uint64{4_000_000_000_000_000, 4_999_999_999_999_999, 8_999_999_999_999_999, limit - 100} {
		preset("ahead", last)
		want := last + 1
		for _, tokens := range []int{1, 1, 5, 1, 2, 1} {
			token, err := ask("ahead", tokens)
			require.NoError(t, err)
			require.Equal(t, want, token, "preset to %d", last)
			want++
		}
		// The same by promotion.
		h := p.take("ahead")
		require.Equal(t, want, h.Token())
		w := startProgram(t, server.URL()).queue("ahead")
		require.NoError(t, h.Unlock())
		h = w.comes(time.Now(), byAsking)
		require.Equal(t, want+1, h.Token())
		require.NoError(t, h.Unlock())
	}

	preset("end", limit-5)
	last := uint64(limit - 5)
	for range 10 {
		token, err := ask("end", 1)
		if err != nil {
			require.ErrorIs(t, err, store.ErrForeignKey)
			break
		}
		require.Greater(t, token, last)
		last = token
	}
	require.Less(t, last, uint64(limit+1))
	_, err := ask("end", 1)
	require.ErrorIs(t, err, store.ErrForeignKey)
	_, err = ask("end", 1000)
	require.ErrorIs(t, err, store.ErrForeignKey)
	_, err = p.Mutex("end").LockContext(bounded(t))
	require.ErrorIs(t, err, dlock.ErrForeignKey)

	// The holder has the last token, and somebody waits.
	preset("last", limit-3)
	q := startProgram(t, server.URL())
	h := p.take("last")
	w := q.queue("last")
	preset("last", limit-1)
	kept(t, lease, h)
	began := time.Now()
	require.NoError(t, h.Unlock())
	require.ErrorIs(t, w.fails(began, lease+slack), dlock.ErrForeignKey)
	_, err = q.Mutex("last").TryLockContext(bounded(t))
	require.ErrorIs(t, err, dlock.ErrForeignKey)

	// A hold for which one waits just now, or two.
	for waiters := 1; waiters <= 2; waiters++ {
		name := fmt.Sprint("last of ", waiters)
		preset(name, 1)
		held := want(name, 1000)
		for i := range 1 + waiters {
			r := want(name, 1000+i)
			r.Queue = true
			_, err := p.store.Acquire(bounded(t), r)
			require.NoError(t, err)
		}
		preset(name, limit-1)
		require.NoError(t, p.store.Release(bounded(t), of(held)))
		state, err := p.store.Inspect(bounded(t), name)
		require.NoError(t, err)
		require.Empty(t, state.Holders)
	}
}

// Tokens of one name grow across all that loses or moves data.
func TestTokensGrow(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	replica := startReplica(t, server)
	var last uint64
	grow := func(what string, url string) {
		t.Helper()
		p := startProgram(t, url)
		for range 3 {
			for _, tokens := range []int{1, 101, 1000} {
				r := want("a", int(last%1e6)+1)
				r.Tokens = tokens
				g, err := p.store.Acquire(bounded(t), r)
				require.NoError(t, err, what)
				require.True(t, g.Held)
				require.Greater(t, g.Token, last, what)
				last = g.Token + uint64(tokens-1-g.Short)
				require.LessOrEqual(t, last, uint64(time.Now().UnixMicro()), "the server's clock, by which tokens grow on when the counter is lost")
				require.NoError(t, p.store.Release(bounded(t), of(r)))
			}
		}
	}
	grow("at first", server.URL())
	server.MustDo("FLUSHALL")
	grow("after FLUSHALL", server.URL())
	server.MustDo("DEL", redis.KeysOf("a")[0])
	grow("without the counter", server.URL())
	until(t, "the replica has all", func() bool { return server.MustDo("WAIT", "1", "5000") == "1" })
	behind(t, server, replica)
	grow("not seen by the replica", server.URL())
	server.Restart()
	grow("after a restart without persistence", server.URL())
	replica.MustDo("REPLICAOF", "NO", "ONE")
	grow("at a stale replica that was promoted", replica.URL())
	_, port := splitAddr(replica.Addr)
	server.MustDo("REPLICAOF", "127.0.0.1", port)
	until(t, "the old master follows", func() bool { return field(server, "replication", "master_link_status") == "up" })
	server.MustDo("REPLICAOF", "NO", "ONE")
	grow("at the old master again", server.URL())
}

// The counter is no number. A request that is refused for that has taken no place, however many wait.
func TestFault32RefusedForTheCounterTakesNoPlace(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	for n, waiters := range []int{1, 70} { // with 70 the name has an index
		name := fmt.Sprint("n", n)
		first := want(name, 1)
		first.TTL = time.Minute
		_, err := s.Acquire(bounded(t), first)
		require.NoError(t, err)
		queue := func(i int) error {
			r := want(name, i)
			r.Queue, r.WaitTTL = true, time.Minute
			_, err := s.Acquire(bounded(t), r)
			return err
		}
		for i := range waiters {
			require.NoError(t, queue(2+i))
		}
		server.MustDo("SET", redis.KeysOf(name)[0], "none")
		require.ErrorIs(t, queue(1000), store.ErrForeignKey)
		server.MustDo("SET", redis.KeysOf(name)[0], "1")
		state, err := s.Inspect(bounded(t), name)
		require.NoError(t, err)
		require.Equal(t, waiters, len(state.Queue))
	}
}
