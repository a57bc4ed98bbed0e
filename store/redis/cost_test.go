package redis_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// commands counts the commands that a server has run since the last CONFIG
// RESETSTAT, those inside scripts among them.
func commands(s *redistest.Server) map[string]int {
	counts := make(map[string]int)
	for _, m := range regexp.MustCompile(`cmdstat_(\S+):calls=(\d+)`).FindAllStringSubmatch(s.MustDo("INFO", "commandstats"), -1) {
		n, _ := strconv.Atoi(m[2])
		if !strings.HasPrefix(m[1], "config") && m[1] != "ping" && m[1] != "info" {
			counts[m[1]] = n
		}
	}
	return counts
}

func newRequest(n int) store.Request {
	return store.Request{
		Name: "name-" + strconv.Itoa(n), Owner: fmt.Sprintf("%032x", n), ID: fmt.Sprintf("%032x", n),
		TTL: time.Minute, WaitTTL: time.Minute, Tokens: 1, Label: "host/12345",
	}
}

// TestCallsOfALoneHold: what the headers of the scripts state.
func TestCallsOfALoneHold(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	req := newRequest(1)
	use := func() {
		if _, err := s.Acquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if errs := s.Renew(t.Context(), []store.Ref{locktest.RefTo(req)}); errs[0] != nil {
			t.Fatal(errs[0])
		}
		locktest.Release(t, s, req)
	}
	use() // loads the scripts and makes the token counter
	server.MustDo("CONFIG", "RESETSTAT")
	use()
	want := map[string]int{
		"evalsha": 2,                                                   // acquire, renew
		"hlen":    1, "time": 1, "set": 1, "hset": 1, "pexpire": 1 + 1, // acquire, and the last for renew
		"hexists": 1, // renew
		"hdel":    1, // release, which is no script
	}
	if got := commands(server); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("commands of an acquire, a renew and a release:\ngot  %v\nwant %v", got, want)
	}
}

// with are calls and some more.
func with(calls map[string]int, more ...string) map[string]int {
	all := maps.Clone(calls)
	for _, c := range more {
		all[c]++
	}
	return all
}

// TestCallsOfAPlace: what the header of acquire states. Behind a lone hold, and
// behind another who waits.
func TestCallsOfAPlace(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := listening(t, server.URL()) // and the scripts are loaded
	for _, modes := range [][2]store.Mode{{store.Exclusive, store.Exclusive}, {store.Shared, store.Exclusive}, {store.Exclusive, store.Shared}} {
		mode, waits := modes[0], modes[1]
		held := newRequest(0)
		held.Name, held.Mode = fmt.Sprint(modes), mode
		if _, err := s.Acquire(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		for waiters, want := range []map[string]int{
			{
				"evalsha": 1, "hlen": 1, "get": 1, "time": 1, "hgetall": 1, "pexpiretime": 1,
				"hset": 1, "hdel": 1, "pexpireat": 1,
			},
			{"evalsha": 1, "hlen": 1, "get": 1, "time": 1, "hmget": 1, "hset": 1, "pexpireat": 1},
		} {
			req := newRequest(1 + waiters)
			req.Name, req.Mode, req.Queue = held.Name, waits, true
			server.MustDo("CONFIG", "RESETSTAT")
			if g, err := s.Acquire(t.Context(), req); err != nil || g.Position != 1+waiters {
				t.Fatal(g, err)
			}
			if got := commands(server); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("commands of a request that waits, %v, behind a hold, %v, and %d others:\ngot  %v\nwant %v", waits, mode, waiters, got, want)
			}
		}
	}
}

// TestCallsOfReaders: what the headers of acquire and release state. Beside one
// other reader, and beside two.
func TestCallsOfReaders(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := listening(t, server.URL()) // and the scripts are loaded
	reader := func(i int) store.Request {
		req := newRequest(i)
		req.Name, req.Mode = "readers", store.Shared
		return req
	}
	counted := func(what string, beside int, want map[string]int, call func() error) {
		t.Helper()
		server.MustDo("CONFIG", "RESETSTAT")
		if err := call(); err != nil {
			t.Fatal(err)
		}
		if got := commands(server); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("commands of a reader who %s %d:\ngot  %v\nwant %v", what, beside, got, want)
		}
	}
	acquire := func(i int) func() error {
		return func() error { _, err := s.Acquire(t.Context(), reader(i)); return err }
	}
	release := func(i int) func() error {
		return func() error { return s.Release(t.Context(), locktest.RefTo(reader(i))) }
	}
	if err := acquire(0)(); err != nil {
		t.Fatal(err)
	}
	join := map[string]int{"evalsha": 1, "hlen": 1, "time": 1, "set": 1, "hset": 1, "pexpireat": 1}
	leave := map[string]int{"evalsha": 1, "hlen": 1, "hmget": 1, "time": 1, "hset": 1, "pexpireat": 1}
	counted("joins", 1, with(join, "hgetall", "pexpiretime", "hdel"), acquire(1))
	counted("joins", 2, with(join, "hmget"), acquire(2))
	counted("leaves", 2, leave, release(0))
	counted("leaves", 1, with(leave, "hdel"), release(2))
	counted("leaves", 0, map[string]int{"evalsha": 1, "hlen": 1, "hdel": 1}, release(1))
}

// TestCallsOfAHandOver: what the header of release states. With one waiter, and
// with two.
func TestCallsOfAHandOver(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	want := map[int]map[string]int{
		1: {
			"evalsha": 1, "hlen": 1, "hmget": 1, "time": 1, // looks
			"set": 1, "hset": 1, "hdel": 1, "pexpireat": 1, "spublish": 1,
		},
		2: {
			"evalsha": 1, "hlen": 1, "hmget": 1, "time": 1,
			"set": 1, "hset": 1, "pexpireat": 1, "spublish": 1,
		},
	}
	for _, waiters := range []int{1, 1, 2} { // the first makes the token counter and loads the script
		var all []store.Request
		for i := range 1 + waiters {
			req := newRequest(i)
			req.Name, req.Queue = "a", true
			if _, err := s.Acquire(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			all = append(all, req)
		}
		for i, req := range all {
			server.MustDo("CONFIG", "RESETSTAT")
			locktest.Release(t, s, req)
			got, first := commands(server), i == 0
			if first && got["eval"] == 0 && fmt.Sprint(got) != fmt.Sprint(want[waiters]) {
				t.Errorf("commands of a release with %d who wait:\ngot  %v\nwant %v", waiters, got, want[waiters])
			}
		}
	}
}

// TestQuickPath: a free name is granted before the script defines its functions, to a request that
// queues and to one that does not.
func TestQuickPath(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c, s := server.Client(), open(t, server.URL())
	req := newRequest(1)
	locktest.Hold(t, s, req) // makes the token counter
	for _, queue := range []bool{false, true} {
		locktest.Release(t, s, req)
		req.Queue = queue
		if token, err := c.Do(t.Context(), redis.QuickAcquire(c, s, req)).ToString(); err != nil || token == "" {
			t.Fatalf("with Queue %v: got %q, %v, want a token", queue, token, err)
		}
	}
}

// TestScriptCost: pipelined, 32 deep, SET NX PX is at most 5 times as fast as
// acquire and 3 times as fast as release, in the median of rounds that each
// measure all three.
func TestScriptCost(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client()
	s := open(t, server.URL()) // loads the scripts
	warm := newRequest(-1)
	if _, err := s.Acquire(t.Context(), warm); err != nil {
		t.Fatal(err)
	}
	locktest.Release(t, s, warm)

	const depth, rounds, number = 32, 15, 3200
	run := func(command func(n int) rueidis.Completed) time.Duration {
		var batches [][]rueidis.Completed
		for n := range number {
			if n%depth == 0 {
				batches = append(batches, nil)
			}
			last := len(batches) - 1
			batches[last] = append(batches[last], command(n))
		}
		began := time.Now()
		for _, batch := range batches {
			for _, answer := range c.DoMulti(context.Background(), batch...) {
				if err := answer.Error(); err != nil {
					t.Fatal(err)
				}
			}
		}
		return time.Since(began)
	}
	var acquire, release []float64 // as multiples of SET
	for range rounds {
		set := run(func(n int) rueidis.Completed {
			return c.B().Set().Key(redis.LockKey("set-" + strconv.Itoa(n))).Value(newRequest(n).ID).Nx().PxMilliseconds(60_000).Build()
		})
		server.MustDo("FLUSHALL")
		took := run(func(n int) rueidis.Completed { return redis.AcquireCommand(c, s, newRequest(n)) })
		acquire = append(acquire, took.Seconds()/set.Seconds())
		took = run(func(n int) rueidis.Completed { return redis.ReleaseCommand(c, s, locktest.RefTo(newRequest(n))) })
		release = append(release, took.Seconds()/set.Seconds())
	}
	for _, m := range []struct {
		what   string
		ratios []float64
		atMost float64
	}{
		{"acquire", acquire, 5},
		{"release", release, 3},
	} {
		slices.Sort(m.ratios)
		median := m.ratios[rounds/2]
		t.Logf("%s takes %.1f times as long as SET NX PX (%.1f to %.1f)", m.what, median, m.ratios[0], m.ratios[rounds-1])
		if median > m.atMost {
			t.Errorf("%s takes %.1f times as long as SET NX PX, want at most %.0f", m.what, median, m.atMost)
		}
	}
}

// TestRenewalsTravelTogether: a thousand holds are renewed by a handful of calls,
// but in a cluster, which wants the keys of a call in one slot.
func TestRenewalsTravelTogether(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	var refs []store.Ref
	for i := range 1000 {
		req := newRequest(i)
		if _, err := s.Acquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		refs = append(refs, locktest.RefTo(req))
	}
	s.Renew(t.Context(), refs[:1]) // loads the script
	server.MustDo("CONFIG", "RESETSTAT")
	for i, err := range s.Renew(t.Context(), refs) {
		if err != nil {
			t.Fatal(i, err)
		}
	}
	if n := commands(server)["evalsha"]; n > 10 {
		t.Errorf("%d calls renewed a thousand holds, want at most 10", n)
	}
}

// TestRenewalPromotes: a renewal that finds somebody dead lets in who waited
// behind, and that takes its token from the counter of the name's own partition,
// whatever else is in the call.
func TestRenewalPromotes(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t).URL())
	var refs []store.Ref
	for i := range 20 {
		name := "name-" + strconv.Itoa(i)
		for k, change := range []func(*store.Request){
			func(r *store.Request) { r.Mode = store.Shared },
			func(r *store.Request) { r.WaitTTL = 50 * time.Millisecond }, // soon dead
			func(r *store.Request) { r.Mode = store.Shared },
		} {
			req := newRequest(100*k + i)
			req.Name, req.Queue = name, true
			change(&req)
			if _, err := s.Acquire(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			if k == 0 {
				refs = append(refs, locktest.RefTo(req))
			}
		}
	}
	time.Sleep(60 * time.Millisecond) // time of the server, which nothing here can move
	for i, err := range s.Renew(t.Context(), refs) {
		if err != nil {
			t.Fatal(i, err)
		}
	}
	for _, ref := range refs {
		state, err := s.Inspect(t.Context(), ref.Name)
		if err != nil {
			t.Fatal(err)
		}
		if len(state.Holders) != 2 || state.Holders[1].Token > state.Token {
			t.Errorf("%q: %+v", ref.Name, state)
		}
	}
}

// TestRenewalsThroughOneNodeOfACluster: a client that takes a node of a cluster
// for a server of its own, as it may behind a proxy, learns that there are slots.
func TestRenewalsThroughOneNodeOfACluster(t *testing.T) {
	t.Parallel()
	node := redistest.StartCluster(t, false).Nodes[0]
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{node.Addr}, ForceSingleClient: true, DisableCache: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s, err := redis.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	var refs []store.Ref
	for i := range 30 {
		req := newRequest(i)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if _, err := s.Acquire(ctx, req); err == nil { // else its slot is elsewhere
			refs = append(refs, locktest.RefTo(req))
		}
		cancel()
	}
	if len(refs) < 3 {
		t.Fatalf("only %d of 30 names are on the node", len(refs))
	}
	for range 2 {
		for i, err := range s.Renew(t.Context(), refs) {
			if err != nil {
				t.Fatal(i, err)
			}
		}
	}
}
