package redis_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store/redis"
)

// soundConfig is of a server that will have nothing wrong with it once it is sound.
var soundConfig = []string{"enable-protected-configs yes", "maxmemory-policy noeviction", "maxmemory 1gb"}

// sound has servers sync their logs at every command, in memory if possible: a
// disk that is busy would make them wait for seconds.
func sound(t *testing.T, servers ...*redistest.Server) {
	t.Helper()
	for _, s := range servers {
		dir, err := os.MkdirTemp("/dev/shm", "dlock")
		if err != nil {
			dir = t.TempDir()
		}
		t.Cleanup(func() {
			s.Kill()
			os.RemoveAll(dir)
		})
		s.MustDo("CONFIG", "SET", "dir", dir)
		s.MustDo("CONFIG", "SET", "appendonly", "yes", "appendfsync", "always")
	}
}

// startSound starts a server that has nothing wrong with it.
func startSound(t *testing.T) *redistest.Server {
	t.Helper()
	s := redistest.Start(t, soundConfig...)
	sound(t, s)
	return s
}

// A server with nothing wrong gives no warning, and Check leaves nothing there.
func TestCheckSound(t *testing.T) {
	t.Parallel()
	server := startSound(t)
	s := open(t, server.URL())
	for range 3 {
		require.Empty(t, s.Check(bounded(t)))
	}
	for key := range strings.FieldsSeq(server.MustDo("KEYS", "*")) {
		require.True(t, strings.HasSuffix(key, "}:token"), "Check has left %q", key)
	}
	// With locks in use, and the keys of others beside the prefix.
	p := startProgram(t, server.URL())
	h := p.take("a")
	startProgram(t, server.URL()).queue("a")
	p.take("b")
	server.MustDo("SET", "dlocker", "x")
	server.MustDo("SET", "x:dlock:", "x")
	require.Empty(t, s.Check(bounded(t)))
	require.NoError(t, h.Unlock())
}

// The same for a cluster, and for sentinels and what is behind them.
func TestCheckSoundServers(t *testing.T) {
	t.Parallel()
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		servers := redistest.StartCluster(t, true, append(soundConfig, "min-replicas-to-write 1")...)
		sound(t, servers.Nodes...)
		require.Empty(t, open(t, servers.URL()).Check(bounded(t)))
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		servers := redistest.StartSentinel(t, 1, append(soundConfig, "min-replicas-to-write 1")...)
		sound(t, servers.Nodes...)
		require.Empty(t, open(t, servers.URL()+"&min_replicas=1").Check(bounded(t)))
	})
}

// Every kind of warning is given by a server that has it, names that server and
// says what to do, and is gone when it is put right.
func TestCheckWarns(t *testing.T) {
	t.Parallel()
	set := func(words ...string) func(*testing.T, *redistest.Server) {
		return func(_ *testing.T, s *redistest.Server) { s.MustDo(append([]string{"CONFIG", "SET"}, words...)...) }
	}
	for name, c := range map[string]struct {
		topic   string
		says    []string
		options string // of the URL
		wrong   func(t *testing.T, s *redistest.Server)
		right   func(t *testing.T, s *redistest.Server)
	}{
		"eviction when full": {
			topic: "eviction", says: []string{"allkeys-lru", "when memory is full", "noeviction"},
			wrong: set("maxmemory-policy", "allkeys-lru"), right: set("maxmemory-policy", "noeviction"),
		},
		"eviction of what expires": {
			topic: "eviction", says: []string{"volatile-ttl", "noeviction"},
			wrong: set("maxmemory-policy", "volatile-ttl"), right: set("maxmemory-policy", "noeviction"),
		},
		"eviction without a limit": {
			topic: "eviction", says: []string{"volatile-lru", "once maxmemory is set"},
			wrong: set("maxmemory-policy", "volatile-lru", "maxmemory", "0"), right: set("maxmemory-policy", "noeviction"),
		},
		"no log": {
			topic: "persistence", says: []string{"appendonly is off", "tokens grow on"},
			wrong: set("appendonly", "no"), right: set("appendonly", "yes"),
		},
		"log not synced": {
			topic: "persistence", says: []string{"appendfsync is everysec"},
			wrong: set("appendfsync", "everysec"), right: set("appendfsync", "always"),
		},
		"replica": {
			topic: "role", says: []string{"replica", "master_set"},
			wrong: func(_ *testing.T, s *redistest.Server) { s.MustDo("REPLICAOF", "127.0.0.1", nowhere) },
			right: func(_ *testing.T, s *redistest.Server) { s.MustDo("REPLICAOF", "NO", "ONE") },
		},
		"too few replicas": {
			topic: "replicas", says: []string{"MinReplicas is 1 but 0 are connected"}, options: "?min_replicas=1&replica_timeout=50ms",
			wrong: func(*testing.T, *redistest.Server) {},
			right: func(t *testing.T, s *redistest.Server) {
				startReplica(t, s)
				s.MustDo("CONFIG", "SET", "min-replicas-to-write", "1")
			},
		},
		"old master may go on": {
			topic: "replicas", says: []string{"min-replicas-to-write is 0"},
			wrong: func(t *testing.T, s *redistest.Server) { startReplica(t, s) },
			right: set("min-replicas-to-write", "1"),
		},
		"foreign string": {
			topic: "foreign data", says: []string{"1 keys", `"dlock:config" (string)`, "Prefix"},
			wrong: func(_ *testing.T, s *redistest.Server) { s.MustDo("SET", "dlock:config", "x") },
			right: func(_ *testing.T, s *redistest.Server) { s.MustDo("DEL", "dlock:config") },
		},
		"lock of another type": {
			topic: "foreign data", says: []string{"4 keys", "(list)", "Prefix"},
			wrong: func(_ *testing.T, s *redistest.Server) {
				for _, name := range []string{"a", "b", "c", "d"} {
					s.MustDo("RPUSH", redis.LockKey(name), "x")
				}
			},
			right: func(_ *testing.T, s *redistest.Server) { s.MustDo("FLUSHALL") },
		},
		"name in the wrong partition": {
			topic: "foreign data", says: []string{"1 keys"},
			wrong: func(_ *testing.T, s *redistest.Server) {
				s.MustDo("HSET", strings.Replace(redis.LockKey("a"), "lock:a", "lock:b", 1), "x", "x")
			},
			right: func(_ *testing.T, s *redistest.Server) { s.MustDo("FLUSHALL") },
		},
		"no right to a key": {
			topic: "rights", says: []string{"may not take a lock"},
			wrong: rule("resetkeys", "~other:*"), right: rule("~*"),
		},
		"no right to a command": {
			topic: "rights", says: []string{"may not take a lock"},
			wrong: rule("-evalsha"), right: rule("+evalsha"),
		},
		"no right to a command of a script": {
			topic: "rights", says: []string{"may not take a lock"},
			wrong: rule("-hset"), right: rule("+hset"),
		},
		"no right to a channel": {
			topic: "rights", says: []string{"SSUBSCRIBE", "SPUBLISH"},
			wrong: rule("resetchannels"), right: rule("&*"),
		},
		"no right to subscribe": {
			topic: "rights", says: []string{"subscribe to wake-ups"},
			wrong: rule("-ssubscribe"), right: rule("+ssubscribe"),
		},
		"no right to publish": {
			topic: "rights", says: []string{"send wake-ups"},
			wrong: rule("-spublish"), right: rule("+spublish"),
		},
		"no right to look": {
			topic: "unchecked", says: []string{"INFO"},
			wrong: rule("-info"), right: rule("+info"),
		},
		"no right to look at keys": {
			topic: "unchecked", says: []string{"foreign data"},
			wrong: rule("-scan"), right: rule("+scan"),
		},
		"read-only": {
			topic: "unreachable", says: []string{"cannot take a lock", "NOREPLICAS"},
			wrong: set("min-replicas-to-write", "1"), right: set("min-replicas-to-write", "0"),
		},
		"full": {
			topic: "unreachable", says: []string{"cannot take a lock", "OOM"},
			wrong: set("maxmemory", "1"), right: set("maxmemory", "0"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startSound(t)
			grant(t, server, "checker", []string{"~*", "&*", "+@all"})
			s := open(t, as("checker", server.Addr)+c.options)
			c.wrong(t, server)
			var said []string
			// Some settings take effect after a while, and connections end.
			until(t, "Check warns", func() bool {
				said = nil
				for _, w := range s.Check(bounded(t)) {
					if w.Topic == c.topic {
						said = append(said, w.String())
						if c.topic != "rights" && c.topic != "unreachable" {
							require.Equal(t, server.Addr, w.Node)
							require.Contains(t, w.String(), w.Topic+" ("+w.Node+"): "+w.Text)
						}
					}
				}
				return len(said) > 0
			})
			for _, text := range c.says {
				require.Contains(t, strings.Join(said, "\n"), text)
			}
			noCanary(t, strings.Join(said, "\n"))
			c.right(t, server)
			var left []redis.Warning
			until(t, "all is well", func() bool { left = s.Check(bounded(t)); return len(left) == 0 })
		})
	}
}

// rule changes the rights of the user of TestCheckWarns, and ends what it has
// open.
func rule(words ...string) func(*testing.T, *redistest.Server) {
	return func(_ *testing.T, s *redistest.Server) {
		s.MustDo(append([]string{"ACL", "SETUSER", "checker"}, words...)...)
	}
}

// Check ends with its context also while another user of the client has all places of its pool.
func TestCheckNoPlaceInThePool(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := poolOfOne(t, server)
	s, err := redis.New(client, nil)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	_, giveBack := client.Dedicate()
	defer giveBack()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Check(ctx)
	}()
	select {
	case <-done:
	case <-time.After(500*time.Millisecond + slack):
		t.Error("Check went on after its context")
	}
}

// A server that is gone, or hangs, is unreachable; Check does not outlive its
// context. A closed handle says so too.
func TestCheckUnreachable(t *testing.T) {
	t.Parallel()
	server := startSound(t)
	s, gone := open(t, server.URL()), redistest.Start(t)
	other := open(t, gone.URL())
	gone.Kill()
	server.Pause()
	for _, s := range []*redis.Store{s, other} {
		ctx, cancel := context.WithTimeout(context.Background(), slack/2)
		began := time.Now()
		warnings := s.Check(ctx)
		cancel()
		require.Less(t, time.Since(began), 2*slack)
		require.NotEmpty(t, warnings)
		for _, w := range warnings {
			require.Equal(t, "unreachable", w.Topic)
		}
	}
	server.Resume()
	until(t, "it is back", func() bool { return len(s.Check(bounded(t))) == 0 })
	require.NoError(t, s.Close())
	require.Equal(t, []redis.Warning{{Topic: "unreachable", Text: "closed"}}, s.Check(bounded(t)))
}

// A server that is too old says so in INFO, whose first lines are no values and,
// over RESP3, begin with a word that is not of the text.
func TestCheckVersion(t *testing.T) {
	t.Parallel()
	for version, old := range map[string]bool{"6.2.14": true, "5.0.7": true, "": true, "7.0.0": false, "8.2.1": false, "10.0.0": false} {
		real := startSound(t)
		fake := startTamperer(t, real.Addr, func(reply []byte) []byte {
			if !strings.Contains(string(reply), "redis_version:") {
				return reply
			}
			return []byte(strings.Replace(string(reply), "redis_version:7.0.15", fmt.Sprintf("redis_version:%-6s", version), 1))
		})
		c, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{fake}, ForceSingleClient: true, DisableCache: true,
		})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		s, err := redis.New(c, nil)
		require.NoError(t, err)
		t.Cleanup(func() { s.Close() })
		warnings := s.Check(bounded(t))
		if !old {
			require.Empty(t, warnings, version)
			continue
		}
		require.Len(t, warnings, 1, version)
		require.Equal(t, "version", warnings[0].Topic)
		require.Contains(t, warnings[0].String(), "7.0")
		require.Contains(t, warnings[0].Text, version)
	}
}

// startTamperer stands before a server and changes what it says, packet by
// packet, without changing its length.
func startTamperer(t *testing.T, addr string, change func(reply []byte) []byte) string {
	t.Helper()
	return serve(t, func(client net.Conn) {
		server, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer server.Close()
		go func() {
			io.Copy(server, client)
			server.(*net.TCPConn).CloseWrite()
		}()
		buf := make([]byte, 1<<20)
		for {
			n, err := server.Read(buf)
			if err != nil {
				return
			}
			if _, err := client.Write(change(buf[:n])); err != nil {
				return
			}
		}
	})
}

// serve accepts connections for a function until the test ends, and waits for
// its calls then.
func serve(t *testing.T, f func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	serveOn(t, l, f)
	return l.Addr().String()
}

// Check looks at the keys of a page together, not one by one: on a link that delays all that is
// sent it needs a few round trips, however many keys there are.
func TestCheckOfManyKeys(t *testing.T) {
	t.Parallel()
	const keys, delay = 3000, 10 * time.Millisecond
	server := startSound(t)
	near := open(t, server.URL())
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() {
			if _, err := near.Acquire(bounded(t), newRequest(i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	proxy := redistest.StartProxy(t, server.Addr)
	far := open(t, proxy.URL())
	proxy.Delay(delay)
	began := time.Now()
	require.Empty(t, far.Check(bounded(t)))
	took := time.Since(began)
	t.Logf("%d keys took %v", keys, took)
	require.Less(t, took, keys*delay/4)
}
