package redis_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// TestCallsOfManySiblings: thousands of requests of one owner are granted together,
// in calls that grow as their number does.
func TestCallsOfManySiblings(t *testing.T) {
	t.Parallel()
	const number, mostEach = 2000, 12
	for what, mode := range map[string]func(i int) store.Mode{
		"all exclusive": func(int) store.Mode { return store.Exclusive },
		"all shared":    func(int) store.Mode { return store.Shared },
		"a reader, then writers and readers": func(i int) store.Mode {
			return []store.Mode{store.Shared, store.Exclusive}[i%2]
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			s := open(t, server.URL())
			held := newRequest(0)
			held.Name = "a"
			if _, err := s.Acquire(t.Context(), held); err != nil {
				t.Fatal(err)
			}
			var all []store.Request
			for i := range number {
				req := newRequest(1 + i)
				req.Name, req.Owner, req.Mode, req.Queue = held.Name, newRequest(1).Owner, mode(i), true
				if g, err := s.Acquire(t.Context(), req); err != nil || g.Position != 1+i {
					t.Fatal(g, err)
				}
				all = append(all, req)
			}

			server.MustDo("CONFIG", "RESETSTAT")
			locktest.Release(t, s, held)
			calls := 0
			for _, n := range commands(server) {
				calls += n
			}
			if calls > mostEach*number {
				t.Errorf("%d calls granted %d requests of one owner, want at most %d each", calls, number, mostEach)
			}

			state, err := s.Inspect(t.Context(), held.Name)
			if err != nil || len(state.Holders) != number || len(state.Queue) > 0 {
				t.Fatalf("%d hold and %d wait, %v", len(state.Holders), len(state.Queue), err)
			}
			first, second := state.Holders[0].Token, state.Holders[1].Token
			if upgrade := mode(0) != mode(1); second < first || upgrade != (second > first) {
				t.Errorf("tokens %d and %d", first, second)
			}
			for i, h := range state.Holders[1:] {
				if h.Token != second {
					t.Fatalf("hold %d has token %d, the second has %d", 1+i, h.Token, second)
				}
			}
			for i, req := range all {
				if err := s.Release(t.Context(), locktest.RefTo(req)); err != nil {
					t.Fatalf("request %d was granted, but: %v", i, err)
				}
			}
			if left := server.MustDo("KEYS", "*:*:*:*"); left != "" {
				t.Errorf("left: %s", left)
			}
		})
	}
}

// TestCallsOfManyDeadSiblings: thousands of requests of one owner have died in the queue, and
// are removed together: a few calls for each, and none that writes his list anew.
func TestCallsOfManyDeadSiblings(t *testing.T) {
	t.Parallel()
	const number, mostEach = 4000, 5
	server, clock := redistest.StartWithClock(t)
	s := open(t, server.URL())
	held := newRequest(0)
	held.Name, held.TTL = "a", 3*time.Hour
	if _, err := s.Acquire(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	lone := server.MustDo("HGETALL", redis.LockKey(held.Name))
	for i := range number {
		req := newRequest(1 + i)
		req.Name, req.Owner, req.Queue, req.WaitTTL = held.Name, newRequest(1).Owner, true, time.Hour
		if g, err := s.Acquire(t.Context(), req); err != nil || g.Position != 1+i {
			t.Fatal(g, err)
		}
	}
	clock.Jump(2 * time.Hour)

	server.MustDo("CONFIG", "RESETSTAT")
	state, err := s.Inspect(t.Context(), held.Name)
	if err != nil || len(state.Holders) != 1 || len(state.Queue) > 0 {
		t.Fatalf("%d hold and %d wait, %v", len(state.Holders), len(state.Queue), err)
	}
	calls, all := commands(server), 0
	for _, n := range calls {
		all += n
	}
	if all > mostEach*number || calls["hset"] > 10 {
		t.Errorf("%d calls removed %d dead requests of one owner, %d wrote: want at most %d each, and 10", all, number, calls["hset"], mostEach)
	}
	if left := server.MustDo("HGETALL", redis.LockKey(held.Name)); left != lone {
		t.Errorf("it was\n%s\nand is\n%s", lone, left)
	}
}

// TestDeadSiblingBesideAForeignRecord: what has been removed before a script comes upon data
// that is not its own is removed from its owner's list too.
func TestDeadSiblingBesideAForeignRecord(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openListed(t, server.URL(), 0)
	held := newRequest(0)
	held.Name = "a"
	if _, err := s.Acquire(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	owner := newRequest(1).Owner
	for i := range 3 {
		req := newRequest(1 + i)
		req.Name, req.Owner, req.Queue, req.WaitTTL = held.Name, owner, true, time.Duration(1000+i)*time.Millisecond
		if _, err := s.Acquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	second, third := newRequest(2).ID, newRequest(3).ID
	server.MustDo("HSET", redis.LockKey(held.Name), "E:"+second, "garbage")
	time.Sleep(1100 * time.Millisecond) // time of the server, which nothing here can move
	if _, err := s.Break(t.Context(), held.Name); !errors.Is(err, store.ErrForeignKey) {
		t.Fatal(err)
	}
	if list := server.MustDo("HGET", redis.LockKey(held.Name), "W:"+owner); list != second+" "+third {
		t.Errorf("of three who are dead the first is removed, and the list is %q", list)
	}
}

// The listed form is written at the end of a script, so a script that comes upon data that is not
// its own has changed nothing.
func TestForeignLineBesideADeadOne(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	for i := range 3 {
		req := newRequest(i)
		req.Name, req.Queue, req.WaitTTL = "a", true, 100*time.Millisecond
		if _, err := s.Acquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	key := redis.LockKey("a")
	waits := server.MustDo("HGET", key, "waits")
	last := strings.LastIndex(strings.TrimRight(waits, "\n"), "\n") + 1
	server.MustDo("HSET", key, "waits", waits[:last]+"garbage\n")
	before := server.MustDo("DUMP", key)
	time.Sleep(150 * time.Millisecond) // time of the server, which nothing here can move
	if _, err := s.Break(t.Context(), "a"); !errors.Is(err, store.ErrForeignKey) {
		t.Fatal(err)
	}
	if server.MustDo("DUMP", key) != before {
		t.Error("the script has changed the lock")
	}
}
