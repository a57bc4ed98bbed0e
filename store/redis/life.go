package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/store"
)

// life is what a handle has seen of the life of a server's data.
//
// The age of a server is not its uptime. Redis computes the uptime from its wall clock: a
// clock that is slow at the start and is set later makes the server older than it is. So
// clients measure the age, each with its own monotonic clock, and leave the result in a key
// of the server for clients that start later.
//
// The key is lost with the data, so a FLUSHALL begins a new life too. It carries the run id of
// the process and the id of what the process replicates, because a snapshot or a replica may
// have the key and lack holds.
type life struct {
	mu    sync.Mutex
	id    string    // of the key; "" before the first contact
	run   string    // the server's process and what it replicates
	since time.Time // first seen then
	left  time.Duration
}

var lifeScript = sync.OnceValue(func() *rueidis.Lua {
	return rueidis.NewLuaScript("#!lua flags=allow-oom\n" + comment.ReplaceAllString(source("life"), ""))
})

// lifeKey holds the life of the data of a server that is no cluster.
func (l *layout) lifeKey() string { return l.start[0] + "life" }

// Incarnation implements [store.Incarnator]. The id changes when the server's process, what
// it replicates, or its data is another one. The age is that for which clients have seen
// this life, by their own clocks. It takes one round trip, two at the first contact, and needs
// the right to INFO.
//
// A cluster refuses: one of its masters may lose its data, and nothing that they share says so.
func (s *Store) Incarnation(ctx context.Context) (id string, age time.Duration, err error) {
	if err := s.ready(ctx); err != nil {
		return "", 0, err
	}
	if s.client.Mode() == rueidis.ClientModeCluster {
		return "", 0, errCluster
	}
	replies, err := s.fetchLife(ctx)
	if err == nil {
		id, age, err = s.readLife(ctx, replies)
	}
	if err != nil {
		return "", 0, s.outcome(err)
	}
	return id, age, nil
}

// errCluster is not ErrUnsupported, by which a quorum may take a node for one that loses nothing.
var errCluster = fmt.Errorf("redis: %w: a cluster is no node of a quorum, because it does not say that it has lost locks", store.ErrRefused)

// askLife is the commands whose replies readLife reads.
func (s *Store) askLife() []rueidis.Completed {
	return []rueidis.Completed{
		s.client.B().Info().Section("server", "replication").Build(),
		s.client.B().Get().Key(s.keys.lifeKey()).Build(),
	}
}

// fetchLife sends them alone.
func (s *Store) fetchLife(ctx context.Context) ([]rueidis.RedisResult, error) {
	return apart(ctx, func() []rueidis.RedisResult { return s.client.DoMulti(ctx, s.askLife()...) })
}

func (s *Store) readLife(ctx context.Context, replies []rueidis.RedisResult) (id string, age time.Duration, err error) {
	text, err := replies[0].ToString()
	if err != nil {
		return "", 0, err
	}
	run, err := runOf(info(text))
	if err != nil {
		return "", 0, err
	}
	text, err = replies[1].ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		return "", 0, err
	}
	id, left, ok := parseLife(text, run)
	if !ok {
		if id, left, err = s.writeLife(ctx, run, newID(), 0); err != nil {
			return "", 0, err
		}
	}
	seen, worth := s.life.see(run, id, left)
	if worth {
		go s.leaveLife(context.WithoutCancel(ctx), run, id, seen)
	}
	return run + ":" + id, max(left, seen), nil
}

// leaveLife writes for clients that start later how long this handle has seen a life. If that life
// has ended meanwhile, the script writes nothing.
func (s *Store) leaveLife(ctx context.Context, run, id string, seen time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _, _ = s.writeLife(ctx, run, id, seen)
}

// writeLife begins a life, or says for how long this handle has seen the one that goes on.
func (s *Store) writeLife(ctx context.Context, run, id string, seen time.Duration) (string, time.Duration, error) {
	args := []string{run, id, strconv.FormatInt(seen.Milliseconds(), 10)}
	reply, err := apart(ctx, func() rueidis.RedisResult {
		return lifeScript().Exec(ctx, s.client, []string{s.keys.lifeKey()}, args)
	})
	if err != nil {
		return "", 0, err
	}
	text, err := reply.ToString()
	if err != nil {
		return "", 0, err
	}
	id, age, ok := parseLife(text, run)
	if !ok {
		return "", 0, unexpected("life", nil)
	}
	return id, age, nil
}

// see notes that the life went on until now, and returns for how long this handle has seen
// it. That is worth a write if clients that start later would learn a quarter more.
func (l *life) see(run, id string, left time.Duration) (seen time.Duration, worth bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.id != id || l.run != run {
		l.id, l.run, l.since, l.left = id, run, now, 0
	}
	l.left = max(l.left, left)
	if seen = now.Sub(l.since); seen > l.left+l.left/4+50*time.Millisecond {
		l.left, worth = seen, true
	}
	return seen, worth
}

func parseLife(text, run string) (id string, age time.Duration, ok bool) {
	parts := strings.Fields(text)
	if len(parts) != 3 || parts[0] != run {
		return "", 0, false
	}
	ms, err := strconv.ParseInt(parts[2], 10, 50)
	return parts[1], time.Duration(ms) * time.Millisecond, err == nil && ms >= 0
}

// runOf names the process and what it replicates, in the form that [store.Incarnator] asks
// for. The latter changes when a replica is promoted: a master may be replaced and come back as
// the master, with less data.
func runOf(in info) (string, error) {
	run, replicates := in.field("run_id"), in.field("master_replid")
	if run == "" || replicates == "" {
		return "", errors.New("redis: the server says no run id and replication id")
	}
	return run + "/" + replicates, nil
}
