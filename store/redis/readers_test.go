package redis_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// TestReadersAndTheirKeys: the keys of readers who come and go last as long as the
// one who stays longest, and no longer.
func TestReadersAndTheirKeys(t *testing.T) {
	t.Parallel()
	for _, listed := range []int{0, 64} {
		t.Run(strconv.Itoa(listed), func(t *testing.T) {
			t.Parallel()
			readersAndTheirKeys(t, listed)
		})
	}
}

func readersAndTheirKeys(t *testing.T, listed int) {
	server := redistest.Start(t)
	s := openListed(t, server.URL(), listed)
	leases := []time.Duration{time.Minute, time.Hour, 10 * time.Hour, time.Minute}
	reader := func(i int) store.Request {
		req := newRequest(i)
		req.Name, req.Mode, req.TTL = "a", store.Shared, leases[i]
		return req
	}
	keys := redis.KeysOf("a")
	there := make(map[int]bool) // who is there
	last := func(what string) {
		t.Helper()
		var want time.Duration
		for i := range there {
			want = max(want, leases[i])
		}
		for k, key := range keys[1:] {
			ms, err := strconv.Atoi(server.MustDo("PTTL", key))
			left := time.Duration(ms) * time.Millisecond
			switch {
			case err != nil:
				t.Fatal(err)
			case k == 1 && (len(there) < 2 || listed > 0):
				if ms != -2 {
					t.Errorf("%s: there is an order, for %v", what, left)
				}
			case left > want || left < want-30*time.Second:
				t.Errorf("%s: %s lasts for %v, want %v", what, key, left, want)
			}
		}
	}
	comes := func(i int) {
		t.Helper()
		locktest.Hold(t, s, reader(i))
		there[i] = true
		last("comes " + strconv.Itoa(i))
	}
	goes := func(i int) {
		t.Helper()
		locktest.Release(t, s, reader(i))
		delete(there, i)
		if len(there) > 0 {
			last("goes " + strconv.Itoa(i))
		}
	}
	for _, order := range [][]int{{2, 1, 0}, {0, 1, 2}, {1, 2, 0}} {
		comes(0)
		comes(1)
		comes(2)
		comes(3)
		goes(3)
		for _, i := range order {
			goes(i)
		}
		if left := server.MustDo("KEYS", "*"); left != keys[0] {
			t.Fatalf("left: %q", left)
		}
		comes(2)
		comes(1)
		goes(2)
		goes(1)
	}
	if err := s.Release(t.Context(), locktest.RefTo(reader(1))); !errors.Is(err, store.ErrLost) {
		t.Fatal(err)
	}
}

// TestReadersShortOfTokens: with a counter ahead of the clock a reader gets one
// token, and is told so.
func TestReadersShortOfTokens(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	ahead := strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10)
	server.MustDo("SET", redis.KeysOf("a")[0], ahead)
	token, _ := strconv.ParseUint(ahead, 10, 64)
	for i := range 4 {
		req := newRequest(i)
		req.Name, req.Mode, req.Tokens = "a", store.Shared, 5
		token++
		if g, err := s.Acquire(t.Context(), req); err != nil || !g.Held || g.Token != token || g.Short != 4 {
			t.Errorf("reader %d: %+v, %v, want token %d, 4 short", i, g, err, token)
		}
	}
}

// TestDeadReadersDoNotPileUp: readers die and others come, but nobody goes, who would
// find them.
func TestDeadReadersDoNotPileUp(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	come := func(first, n int, lease time.Duration) {
		t.Helper()
		for i := range n {
			req := newRequest(first + i)
			req.Name, req.Mode, req.TTL = "a", store.Shared, lease
			locktest.Hold(t, s, req)
		}
	}
	come(0, 1, time.Minute)
	come(1, 50, s.MinTTL())
	time.Sleep(2 * s.MinTTL()) // time of the server, which nothing here can move
	come(100, 64, time.Minute)
	if got := server.MustDo("ZCARD", redis.KeysOf("a")[2]); got != "65" {
		t.Errorf("%s entries, want 65 who live", got)
	}
}
