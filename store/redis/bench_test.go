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

// BenchmarkPair takes and releases free names, of which each goroutine has its own:
// the store, and the floor of SET NX PX and a script that compares and deletes, on a
// client with the same options. It reports how many pairs a second there are.
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
			req.Queue, req.Tokens = true, 101
			if _, err := s.Acquire(ctx, req); err != nil {
				return err
			}
			return s.Release(ctx, refOf(req))
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
	for _, goroutines := range []int{1, 64, 512} {
		for _, what := range []string{"floor", "store"} {
			pair := pairs[what]
			b.Run(fmt.Sprintf("%s/%d", what, goroutines), func(b *testing.B) {
				b.ReportAllocs()
				server.MustDo("CONFIG", "RESETSTAT")
				var next atomic.Int64
				var all sync.WaitGroup
				b.ResetTimer()
				began := time.Now()
				for g := range goroutines {
					all.Go(func() {
						for next.Add(1) <= int64(b.N) {
							if err := pair(g); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "pairs/s")
				b.StopTimer()
				b.ReportMetric(serverTime(server, commands[what]...)/float64(b.N), "server-µs/pair")
			})
		}
	}
}

// BenchmarkTurn hands a name over between two handles, again and again: each takes a place,
// is granted it by the other's release, and releases. The server works on 32 names at once.
func BenchmarkTurn(b *testing.B) {
	server := redistest.Start(b)
	s := open(b, server.URL())
	for what, modes := range map[string][2]store.Mode{
		"writers": {store.Exclusive, store.Exclusive}, "writer and reader": {store.Exclusive, store.Shared}, "readers": {store.Shared, store.Shared},
	} {
		b.Run(what, func(b *testing.B) {
			var all sync.WaitGroup
			var next atomic.Int64
			server.MustDo("CONFIG", "RESETSTAT")
			for g := range 32 {
				all.Go(func() {
					ask := func(i int) store.Request {
						req := newRequest(2*g + i%2)
						req.Name, req.Queue, req.Mode = "name-"+strconv.Itoa(g), true, modes[i%2]
						if _, err := s.Acquire(b.Context(), req); err != nil {
							b.Error(err)
						}
						return req
					}
					last := ask(0)
					for i := 1; next.Add(1) <= int64(b.N); i++ {
						req := ask(i)
						if err := s.Release(b.Context(), refOf(last)); err != nil {
							b.Error(err)
						}
						last = req
					}
					if err := s.Release(b.Context(), refOf(last)); err != nil {
						b.Error(err)
					}
				})
			}
			all.Wait()
			b.ReportMetric(serverTime(server, "evalsha", "hdel")/float64(b.N), "server-µs/turn")
		})
	}
}
