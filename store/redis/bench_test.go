package redis_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// serverTime is how many µs a server has spent on some commands since CONFIG RESETSTAT.
// The time of a script includes that of the commands in it.
func serverTime(s *redistest.Server, commands ...string) (us float64) {
	for line := range strings.Lines(s.MustDo("INFO", "commandstats")) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		if slices.Contains(commands, name) {
			_, usec, _ := strings.Cut(rest, "usec=")
			usec, _, _ = strings.Cut(usec, ",")
			n, _ := strconv.ParseFloat(usec, 64)
			us += n
		}
	}
	return us
}

// mainThread is the processor time of a server's main thread, in seconds. It includes what is written to the
// append-only file.
func mainThread(s *redistest.Server) (t float64) {
	for _, f := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		n, _ := strconv.ParseFloat(field(s, "cpu", f), 64)
		t += n
	}
	return t
}

// BenchmarkPair takes and releases free names, of which each goroutine has its own:
// the store, and the floor of SET NX PX and a script that compares and deletes, on a
// client with the same options, without and with an append-only file (appendfsync everysec).
// It reports how many pairs a second there are, and the server's time for its commands and in all.
func BenchmarkPair(b *testing.B) {
	server := redistest.Start(b)
	options := func() rueidis.ClientOption {
		o, _, err := redis.ParseURL(server.URL())
		if err != nil {
			b.Fatal(err)
		}
		return *o
	}
	client, err := rueidis.NewClient(options())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.Close)
	compareAndDelete := rueidis.NewLuaScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)
	s := open(b, server.URL())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pairs := map[string]func(i int) error{
		"store": func(i int) error {
			req := newRequest(i)
			req.Queue = true
			if _, err := s.Acquire(ctx, req); err != nil {
				return err
			}
			return s.Release(ctx, locktest.RefTo(req))
		},
		"floor": func(i int) error {
			req := newRequest(i)
			if err := client.Do(ctx, client.B().Set().Key(req.Name).Value(req.ID).Nx().PxMilliseconds(60_000).Build()).Error(); err != nil {
				return err
			}
			return compareAndDelete.Exec(ctx, client, []string{req.Name}, []string{req.ID}).Error()
		},
	}
	commands := map[string][]string{"store": {"evalsha", "hdel"}, "floor": {"evalsha", "set"}}
	for _, file := range []string{"no", "yes"} {
		for _, goroutines := range []int{1, 64, 512} {
			for _, what := range []string{"floor", "store"} {
				b.Run(fmt.Sprintf("%s/%d/aof=%s", what, goroutines, file), func(b *testing.B) {
					b.ReportAllocs()
					server.MustDo("CONFIG", "SET", "appendonly", file)
					require.Eventually(b, func() bool { return field(server, "persistence", "aof_rewrite_in_progress") == "0" },
						10*time.Second, 10*time.Millisecond)
					server.MustDo("CONFIG", "RESETSTAT")
					before := mainThread(server)
					b.ResetTimer()
					began := time.Now()
					atOnce(b, goroutines, pairs[what])
					b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "pairs/s")
					b.StopTimer()
					b.ReportMetric(serverTime(server, commands[what]...)/float64(b.N), "server-µs/pair")
					b.ReportMetric((mainThread(server)-before)*1e6/float64(b.N), "thread-µs/pair")
				})
			}
		}
	}
}

// atOnce has goroutines do b.N turns together, each with a number of its own.
func atOnce(b *testing.B, goroutines int, turn func(i int) error) {
	var next atomic.Int64
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for next.Add(1) <= int64(b.N) {
				if err := turn(g); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// BenchmarkTurn hands a name over from request to request: each takes a place, is granted by the
// release of the one before it, and releases. The server works on 32 names at once.
func BenchmarkTurn(b *testing.B) {
	server := redistest.Start(b)
	s := open(b, server.URL())
	cpu := func() float64 { return mainThread(server) }
	for _, c := range []struct {
		what  string
		depth int // requests of a name at once
		modes [2]store.Mode
	}{
		{"writers", 2, [2]store.Mode{store.Exclusive, store.Exclusive}},
		{"16 writers", 16, [2]store.Mode{store.Exclusive, store.Exclusive}},
		{"writer and reader", 2, [2]store.Mode{store.Exclusive, store.Shared}},
		{"readers", 2, [2]store.Mode{store.Shared, store.Shared}},
		{"16 readers", 16, [2]store.Mode{store.Shared, store.Shared}},
		{"16 writers and readers", 16, [2]store.Mode{store.Exclusive, store.Shared}},
	} {
		b.Run(c.what, func(b *testing.B) {
			var all sync.WaitGroup
			var next atomic.Int64
			server.MustDo("CONFIG", "RESETSTAT")
			before := cpu()
			for g := range 32 {
				all.Go(func() {
					ask := func(i int) store.Request {
						req := newRequest(c.depth*g + i%c.depth)
						req.Name, req.Queue, req.Mode = "name-"+strconv.Itoa(g), true, c.modes[i%2]
						if _, err := s.Acquire(b.Context(), req); err != nil {
							b.Error(err)
						}
						return req
					}
					var there []store.Request
					leave := func() {
						if err := s.Release(b.Context(), locktest.RefTo(there[0])); err != nil {
							b.Error(err)
						}
						there = there[1:]
					}
					for i := 0; next.Add(1) <= int64(b.N); i++ {
						if there = append(there, ask(i)); len(there) == c.depth {
							leave()
						}
					}
					for len(there) > 0 {
						leave()
					}
				})
			}
			all.Wait()
			b.ReportMetric(serverTime(server, "evalsha", "hdel")/float64(b.N), "server-µs/turn")
			b.ReportMetric((cpu()-before)*1e6/float64(b.N), "cpu-µs/turn")
		})
	}
}
