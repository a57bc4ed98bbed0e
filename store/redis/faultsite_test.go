package redis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// site is a server, a wire to it that can be tampered with, and a handle on its
// locks that sees the server directly.
type site struct {
	t      *testing.T
	server *redistest.Server
	proxy  *redistest.Proxy
	direct *redis.Store

	shas  map[string]string // of the scripts: sha -> name
	looks atomic.Int64      // calls of state

	mu   sync.Mutex
	sent map[string][][]string // script -> ARGV of the calls since the last on
}

const (
	acquire = "acquire"
	renew   = "renew"
	release = "release"
	// deletion is the command that releases a lone hold. It is planned as a script is.
	deletion = "HDEL"
)

// newSite starts the server and has it learn the scripts, so that a call is one
// EVALSHA from now on.
func newSite(t *testing.T, config ...string) *site {
	t.Helper()
	s := &site{t: t, server: redistest.Start(t, config...), shas: map[string]string{}}
	s.proxy = redistest.StartProxy(t, s.server.Addr)
	s.direct = open(t, s.server.URL())
	h := open(t, s.proxy.URL())
	req := locktest.Request("learn", 1)
	for _, call := range []struct {
		name string
		do   func() error
	}{
		{acquire, func() error { _, err := h.Acquire(t.Context(), req); return err }},
		{renew, func() error { return h.Renew(t.Context(), []store.Ref{locktest.RefTo(req)})[0] }},
		{release, func() error {
			if err := h.Release(t.Context(), locktest.RefTo(req)); err != nil {
				return err
			}
			// It was deleted by HDEL. The script is asked when there is nothing to delete.
			if err := h.Release(t.Context(), locktest.RefTo(req)); !errors.Is(err, store.ErrLost) {
				return fmt.Errorf("a second release: %w", err)
			}
			return nil
		}},
	} {
		s.proxy.Plan(func(_ int, args []string) redistest.Action {
			if args[0] == "EVALSHA" {
				s.shas[args[1]] = call.name
			}
			return redistest.Pass
		})
		if err := call.do(); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	s.on("", redistest.Pass)
	s.state("learn")
	return s
}

// on has the calls of a script with these numbers, counted from now on, meet an
// action; all of them if there are no numbers. Other calls pass.
func (s *site) on(script string, a redistest.Action, numbers ...int) {
	s.plan(func(name string, n int) redistest.Action {
		if name == script && (len(numbers) == 0 || slices.Contains(numbers, n)) {
			return a
		}
		return redistest.Pass
	})
}

// plan says what happens to the n-th call of a script, counted from now on.
func (s *site) plan(f func(script string, n int) redistest.Action) {
	s.mu.Lock()
	sent := map[string][][]string{}
	s.sent = sent
	s.mu.Unlock()
	s.proxy.Plan(func(_ int, args []string) redistest.Action {
		script, rest := deletion, args[1:]
		if args[0] != deletion {
			keys, _ := strconv.Atoi(args[2])
			script, rest = s.shas[args[1]], args[3+keys:]
		}
		s.mu.Lock()
		sent[script] = append(sent[script], rest)
		n := len(sent[script])
		s.mu.Unlock()
		return f(script, n)
	})
}

// calls returns the arguments of the calls of a script since the last on.
func (s *site) calls(script string) [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent[script])
}

// near is a client that sees the server directly, far one behind the proxy.
func (s *site) near(o dlock.Options) *dlock.Client {
	s.t.Helper()
	return locktest.NewClient(s.t, open(s.t, s.server.URL()), o)
}
func (s *site) far(o dlock.Options) *dlock.Client {
	s.t.Helper()
	return locktest.NewClient(s.t, open(s.t, s.proxy.URL()), o)
}

// manyConnections is a client of a user who has four connections to the server,
// so that what is sent later may overtake.
func manyConnections(t *testing.T, addr string) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true,
		AlwaysPipelining: true, PipelineMultiplex: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// newStore is redis.New with the default options.
func newStore(t *testing.T, c rueidis.Client) *redis.Store {
	t.Helper()
	s, err := redis.New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// lock takes a lock that is free.
func (s *site) lock(c *dlock.Client, name string) *dlock.Hold {
	s.t.Helper()
	return locktest.Lock(s.t, c, name)
}

// handOver has a lock go from one client to another, which listens from then on.
func (s *site) handOver(from, to *dlock.Client, name string) {
	s.t.Helper()
	locktest.HandOver(s.t, s.direct, from, to, name, s.listens)
}

// listens waits until the one waiter listens.
func (s *site) listens() {
	s.t.Helper()
	locktest.Poll(s.t, "it listens", locktest.Patience, func() bool { return len(channels(s.server)) == 1 })
}

// state asks the server itself.
func (s *site) state(name string) store.State {
	s.t.Helper()
	state, err := s.direct.Inspect(context.Background(), name)
	s.looks.Add(1)
	if err != nil {
		s.t.Fatal(err)
	}
	return state
}

// cost is how many script calls the server has run, those of state apart.
func (s *site) cost() int { return scriptCalls(s.t, s.server) - int(s.looks.Load()) }

// queued waits until so many wait for name at the server.
func (s *site) queued(name string, n int) {
	s.t.Helper()
	locktest.Poll(s.t, strconv.Itoa(n)+" in the queue of "+name, locktest.Patience, func() bool { return len(s.state(name).Queue) == n })
}

// granted waits until the server has a holder of name.
func (s *site) granted(name string) {
	s.t.Helper()
	locktest.Poll(s.t, "a holder of "+name, locktest.Patience, func() bool { return len(s.state(name).Holders) == 1 })
}

// holds asserts that the hold is good and the only one the server has.
func (s *site) holds(h *dlock.Hold) {
	s.t.Helper()
	locktest.OnlyHold(s.t, h, s.state(h.Name()))
}

// over asserts that nobody holds name or waits for it, and that no key is left
// when the ids that are buried have been forgotten.
func (s *site) over(name string, o dlock.Options) {
	s.t.Helper()
	locktest.Unused(s.t, s.state(name))
	s.empty(o.TTL + 2*time.Second)
}

// empty waits until no key is left but token counters.
func (s *site) empty(within time.Duration) {
	s.t.Helper()
	locktest.Poll(s.t, "no key left", within, func() bool { return len(s.keys()) == 0 })
}

func (s *site) keys() []string {
	return slices.DeleteFunc(strings.Fields(s.server.MustDo("KEYS", "*")), func(key string) bool {
		return strings.HasPrefix(key, "dlock:{") && strings.HasSuffix(key, "}:token")
	})
}

// scriptCalls is how many script calls the server has run.
func scriptCalls(t *testing.T, server *redistest.Server) (n int) {
	t.Helper()
	return commandCalls(t, server, "eval") // and evalsha
}

// commandCalls is how many commands the server has run whose names begin so.
func commandCalls(t *testing.T, server *redistest.Server, prefix string) (n int) {
	t.Helper()
	for line := range strings.Lines(server.MustDo("INFO", "commandstats")) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+prefix); ok {
			_, count, _ := strings.Cut(rest, "calls=")
			count, _, _ = strings.Cut(count, ",")
			calls, err := strconv.Atoi(count)
			if err != nil {
				t.Fatalf("what is %q?", line)
			}
			n += calls
		}
	}
	return n
}
