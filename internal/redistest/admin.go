package redistest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

const commandTimeout = 10 * time.Second

// Client returns a client for this server alone, the same at every call, also
// for a member of a cluster or a sentinel. The first call connects, and fails
// the test if the server does not run. The test ends it; do not close it.
func (s *Server) Client() rueidis.Client {
	s.t.Helper()
	s.mu.Lock()
	admin := s.admin
	s.mu.Unlock()
	if admin != nil {
		return admin
	}
	admin, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:       []string{s.Addr},
		Dialer:            net.Dialer{Timeout: startTimeout}, // machines stand still at times
		ForceSingleClient: true,
		DisableCache:      true,
		AlwaysPipelining:  true,
		PipelineMultiplex: -1, // one connection, so that Restart can wait for it
	})
	if err != nil {
		s.t.Fatalf("redistest: cannot connect to %s: %v", s.Addr, err)
	}
	s.mu.Lock()
	first := s.admin == nil
	if first {
		s.admin = admin
	}
	chosen := s.admin
	s.mu.Unlock()
	if !first {
		admin.Close()
	}
	return chosen
}

// Do sends one command to this server, Do("CONFIG", "SET", "maxmemory", "1"),
// and blocks for its reply for at most 10 s. It retries nothing and may be
// called concurrently.
func (s *Server) Do(args ...string) rueidis.RedisResult {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	c := s.Client()
	return c.Do(ctx, c.B().Arbitrary(args[0]).Args(args[1:]...).Build())
}

// MustDo is Do that fails the test on an error and returns the reply as text:
// nil is "", the elements of an array and the keys and values of a map, sorted
// by key, stand on lines of their own.
func (s *Server) MustDo(args ...string) string {
	s.t.Helper()
	reply, err := s.Do(args...).ToAny()
	if err != nil && !rueidis.IsRedisNil(err) {
		s.t.Fatalf("redistest: %s at %s: %v", strings.Join(args, " "), s.Addr, err)
	}
	if verbatim[strings.ToUpper(args[0])] {
		return strings.TrimPrefix(text(reply), "txt:")
	}
	return text(reply)
}

// verbatim are the commands with replies that RESP3 has as verbatim strings,
// whose format rueidis leaves before the text.
var verbatim = map[string]bool{"CLIENT": true, "CLUSTER": true, "INFO": true, "LATENCY": true, "MEMORY": true}

// KillClients closes the connections of a type, "normal" or "pubsub", and returns
// how many. Those of sentinels stay: without them they soon think the server dead.
func (s *Server) KillClients(kind string) (n int) {
	s.t.Helper()
	for _, line := range strings.Split(s.MustDo("CLIENT", "LIST", "TYPE", kind), "\n") {
		id, rest, ok := strings.Cut(strings.TrimPrefix(line, "id="), " ")
		if !ok || strings.Contains(rest, " name=sentinel-") {
			continue
		}
		if s.MustDo("CLIENT", "KILL", "ID", id) == "1" { // not so of the one that asks
			n++
		}
	}
	return n
}

func text(reply any) string {
	var lines []string
	switch r := reply.(type) {
	case nil:
	case []any:
		for _, e := range r {
			lines = append(lines, text(e))
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(r)) {
			lines = append(lines, key, text(r[key]))
		}
	default:
		return fmt.Sprint(r)
	}
	return strings.Join(lines, "\n")
}

// await blocks until ok, and fails the test if that takes longer than a minute.
func (s *Server) await(what string, ok func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(startTimeout)
	for !ok() {
		if time.Now().After(deadline) {
			s.t.Fatalf("redistest: waited %v in vain until %s (%s)", startTimeout, what, s.Addr)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
