package redis_test

import (
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// The keys of docs/redis.md are those of its example, but for the one that a server has once.
func TestDocumentedTag(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/redis.md")
	require.NoError(t, err)
	require.Contains(t, string(text), " "+redis.LockKey("orders/1")+"\n")
	tag := regexp.MustCompile(`\{\d+[a-z]+\}`)
	const once = "dlock:{0pn}:life"
	require.Contains(t, string(text), once)
	for _, found := range tag.FindAllString(strings.ReplaceAll(string(text), once, ""), -1) {
		require.Equal(t, tag.FindString(redis.LockKey("orders/1")), found)
	}
}

// Masters with equal ranges of slots get equal shares of the partitions: at most one more
// than the mean.
func TestPartitionsSpread(t *testing.T) {
	t.Parallel()
	slots := redis.PartitionSlots()
	for masters := 1; masters <= 16; masters++ {
		shares := make([]int, masters)
		each := 16384 / float64(masters)
		for _, slot := range slots {
			m := 0
			for float64(slot) >= math.Round(float64(m+1)*each) {
				m++
			}
			shares[m]++
		}
		for m, share := range shares {
			if float64(share) > float64(len(slots))/float64(masters)+1 {
				t.Errorf("of %d masters the %d. has %d of %d partitions", masters, m, share, len(slots))
			}
		}
	}
}

// The server is not busy for long with holds that are due together: each call renews a few of
// them, and few calls are under way at once. Such a call takes the server not much longer than a
// script with the same commands and nothing else.
func TestRenewalsDoNotDelayLocks(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL())
	const holds = 10_000
	refs := make([]store.Ref, holds)
	var all sync.WaitGroup
	for i := range refs {
		all.Go(func() {
			req := newRequest(i)
			refs[i] = locktest.RefTo(req)
			if _, err := s.Acquire(t.Context(), req); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	proxy := redistest.StartProxy(t, server.Addr)
	far := open(t, proxy.URL())
	far.Renew(t.Context(), refs[:1])                                                           // the script is known
	server.MustDo("CONFIG", "SET", "slowlog-max-len", "1000", "slowlog-log-slower-than", "20") // not the commands in scripts
	server.MustDo("CONFIG", "RESETSTAT")
	proxy.Plan(func(call int, _ []string) redistest.Action {
		if call > 2 {
			return redistest.Pass
		}
		return redistest.Hold
	})
	renewed := make(chan []error, 1)
	go func() { renewed <- far.Renew(t.Context(), refs) }()
	until(t, "two calls are under way", func() bool { return proxy.Calls() >= 1 })
	if n := proxy.Calls(); n > 2 {
		t.Errorf("%d calls of renewals are under way, want at most 2", n)
	}
	proxy.Plan(nil)
	proxy.Unhold()
	for i, err := range <-renewed {
		if err != nil {
			t.Fatal(i, err)
		}
	}
	stats := commands(server)
	if each := float64(stats["pexpire"]) / float64(stats["evalsha"]); each > 128 {
		t.Errorf("a call renews %.0f holds, want at most 128", each)
	}
	server.MustDo("HSET", "floor", "L:id", "1")
	for range 200 {
		server.MustDo("EVAL", `for i = 1, 128 do redis.call('HEXISTS', KEYS[1], 'L:id') redis.call('PEXPIRE', KEYS[1], 30000) end`, "1", "floor")
	}
	// A machine that does other things makes most of them slower.
	took, floor := slices.Min(inSlowLog(t, server, "EVALSHA", "384")), slices.Min(inSlowLog(t, server, "EVAL", "1")) // three keys each
	t.Logf("calls of 128 holds took %v or more each, two at once; the same commands alone %v", took, floor)
	if took > 4*floor {
		t.Errorf("renewals put %v of the server's time in front of a lock, each more than 4 times the %v of their commands", 2*took, floor)
	}
}

// inSlowLog returns how long the scripts took with so many keys, by the slow log.
func inSlowLog(t *testing.T, s *redistest.Server, name, keys string) (took []time.Duration) {
	t.Helper()
	c := s.Client()
	entries, err := c.Do(t.Context(), c.B().Arbitrary("SLOWLOG", "GET", "1000").Build()).ToArray()
	require.NoError(t, err)
	for _, entry := range entries {
		fields, err := entry.ToArray()
		require.NoError(t, err)
		command, err := fields[3].AsStrSlice()
		require.NoError(t, err)
		us, err := fields[2].AsInt64()
		require.NoError(t, err)
		if command[0] == name && command[2] == keys {
			took = append(took, time.Duration(us)*time.Microsecond)
		}
	}
	require.NotEmpty(t, took)
	return took
}
