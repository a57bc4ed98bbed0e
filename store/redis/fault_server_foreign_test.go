package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// kinds puts a value of each Redis type at a key.
var kinds = map[string]func(key string, words ...string) []string{
	"string": func(key string, words ...string) []string { return []string{"SET", key, strings.Join(words, " ")} },
	"list":   func(key string, words ...string) []string { return append([]string{"RPUSH", key}, words...) },
	"set":    func(key string, words ...string) []string { return append([]string{"SADD", key}, words...) },
	"stream": func(key string, words ...string) []string { return append([]string{"XADD", key, "*", "f"}, words[0]) },
	"hash": func(key string, words ...string) []string {
		return append([]string{"HSET", key}, words[:len(words)/2*2]...)
	},
	"zset": func(key string, words ...string) []string {
		command := []string{"ZADD", key}
		for i, word := range words {
			command = append(command, fmt.Sprint(i), word)
		}
		return command
	},
}

// mayBe reports whether an operation may end so when what it finds was not
// written by dlock. Anything else is not typed.
func mayBe(err error, allowed ...error) bool {
	for _, ok := range append(allowed, store.ErrForeignKey) {
		if errors.Is(err, ok) {
			return true
		}
	}
	return err == nil
}

// A key of the lock, or the counter, has another type. That is said at once and
// by name, and nobody waits for it to become free.
func TestFault32KeyOfAnotherType(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := startProgram(t, server.URL())
	own := [...]string{"string", "hash", "zset"} // types of KeysOf
	for i := range redis.KeysOf("a") {
		for kind, plant := range kinds {
			if kind == own[min(i, len(own)-1)] {
				continue
			}
			name := fmt.Sprint("key ", i, " is a ", kind)
			key := redis.KeysOf(name)[i]

			// Before anybody has locked.
			server.MustDo("DEL", key)
			server.MustDo(plant(key, "a", "b", "c", "d")...)
			began := time.Now()
			r := want(name, 1)
			r.Queue = true
			_, err := p.store.Acquire(bounded(t), r)
			switch {
			case i <= 1: // the counter and the lock: nothing can be granted
				require.ErrorIs(t, err, store.ErrForeignKey, name)
				require.ErrorContains(t, err, "WRONGTYPE")
				require.NotErrorIs(t, err, store.ErrHeld)
				_, err = p.Mutex(name).LockContext(bounded(t))
				require.ErrorIs(t, err, dlock.ErrForeignKey, name)
				_, err = p.Mutex(name).TryLockContext(bounded(t))
				require.ErrorIs(t, err, dlock.ErrForeignKey, name)
				require.Panics(t, func() { p.Mutex(name).Lock() }, "Lock would wait for ever")
				require.Equal(t, kind, server.MustDo("TYPE", key), "it belongs to somebody")
			default:
				require.True(t, mayBe(err), "%s: %v", name, err)
			}
			if err == nil {
				require.NoError(t, p.store.Release(bounded(t), of(r)))
			}
			everyCall(t, p.store, name)
			require.Less(t, time.Since(began), 2*slack, name)
			server.MustDo("DEL", key)
			require.NoError(t, p.take(name).Unlock())
		}
	}
}

// Somebody overwrites the lock while it is held and waited for: the holder is
// told, and who waits gets an error and does not wait for ever.
func TestFault32OverwrittenWhileHeld(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for kind, plant := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			a, b := startProgram(t, server.URL()), startProgram(t, server.URL())
			h, w := a.take(kind), b.queue(kind)
			key := redis.LockKey(kind)
			began := time.Now()
			// At once, or the waiter would be quicker.
			planted := plant(key, "L:x", "1", "o:y", "z", "holds", "1")
			const overwrite = "redis.call('DEL', KEYS[1]) return redis.call(unpack(ARGV))"
			tell(t, server, append([]string{"EVAL", overwrite, "1", key}, planted...)...)
			require.ErrorIs(t, w.fails(began, byAsking), dlock.ErrForeignKey)
			told(t, h, began, byRenewal)
			require.Equal(t, kind, tell(t, server, "TYPE", key), "it belongs to somebody")
			tell(t, server, "DEL", key)
			require.Greater(t, b.take(kind).Token(), h.Token())
		})
	}
}

// A string without an expiry lies where the lock should be, or any hash that is
// not a lock. It would look held for ever.
func TestFault33ForeignWithoutExpiry(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := startProgram(t, server.URL())
	for i, command := range [][]string{
		{"SET", "x"},
		{"SET", "", "EX", "1000"},
		{"HSET", "field", "value"},
		{"HSET", "field", "value", "other", "value"},
		{"HSET", "a", "b", "c", "d", "e", "f"},
		{"HSET", "L:" + want("", 1).ID, "1 x " + want("", 1).Owner + " no expiry"},
		{"HSET", "L:0123456789abcdef0123456789abcdef", "not the record of a hold"},
		{"HSET", "holds", "", "waits", "garbage"},
		{"HSET", "holds", "garbage\n", "waits", ""},
		{"HSET", "holds", "1", "exclusive", "1", "serial", "1"},
		{"HSET", "counts", "1 1 1", "E:a", "b"},
		{"HSET", "o:" + want("", 1).Owner, "1", "i:" + want("", 1).ID, "x " + want("", 1).Owner + " 1 1 the form of version 0.1"},
	} {
		name := fmt.Sprint(i)
		key := redis.LockKey(name)
		server.MustDo(append([]string{command[0], key}, command[1:]...)...)
		began := time.Now()
		state, err := p.store.Inspect(bounded(t), name)
		if err == nil { // what is left of a full form is no lock
			require.Empty(t, state.Holders, "%q", command)
			require.NoError(t, p.take(name).Unlock())
			continue
		}
		require.ErrorIs(t, err, store.ErrForeignKey, "%q", command)
		require.ErrorContains(t, err, "redis: key is not a lock")
		_, err = p.Mutex(name).LockContext(bounded(t))
		require.ErrorIs(t, err, dlock.ErrForeignKey, "%q", command)
		_, err = p.RWMutex(name).TryRLockContext(bounded(t))
		require.ErrorIs(t, err, dlock.ErrForeignKey, "%q", command)
		require.Less(t, time.Since(began), slack)
		require.NotEqual(t, "0", server.MustDo("EXISTS", key), "it belongs to somebody")
		if command[0] == "SET" {
			require.Contains(t, topics(p.store), "foreign data")
		}
		server.MustDo("DEL", key)
		require.NotContains(t, topics(p.store), "foreign data")
	}
}

// everyCall calls each method of the store on a name whose data may be anything.
// Each ends soon, with an answer or a typed error.
func everyCall(t testing.TB, s *redis.Store, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), ample/2)
	defer cancel()
	check := func(what string, err error, allowed ...error) {
		t.Helper()
		if !mayBe(err, allowed...) {
			t.Errorf("%s of %q: %v is neither an answer nor a typed error", what, name, err)
		}
	}
	for n, mode := range []store.Mode{store.Exclusive, store.Shared, store.Exclusive} {
		r := want(name, n+1)
		r.Mode, r.Queue = mode, n != 0
		for range 2 {
			g, err := s.Acquire(ctx, r)
			check("Acquire", err, store.ErrHeld, store.ErrUpgrade, store.ErrLost)
			switch {
			case err == nil && g.Held:
				if g.Token == 0 || g.TTL <= 0 || g.TTL > maxLease || g.Holds < 1 {
					t.Errorf("Acquire of %q granted %+v", name, g)
				}
			case err == nil:
				if g.Position < 1 || g.Retry <= 0 || g.Retry > maxLease {
					t.Errorf("Acquire of %q queued %+v", name, g)
				}
			case errors.Is(err, store.ErrHeld):
				if g.Retry <= 0 || g.Retry > maxLease {
					t.Errorf("Acquire of %q: held, with %+v", name, g)
				}
			}
		}
	}
	_, err := s.Inspect(ctx, name)
	check("Inspect", err)
	for i, err := range s.Renew(ctx, []store.Ref{of(want(name, 1)), of(want(name, 2)), of(want("not "+name, 3))}) {
		check(fmt.Sprint("Renew ", i), err, store.ErrLost)
	}
	ref := of(want(name, 1))
	check("Release", s.Release(ctx, ref), store.ErrLost)
	ref = of(want(name, 2))
	ref.Bury = true
	check("Release with Bury", s.Release(ctx, ref), store.ErrLost)
	check("Release", s.Release(ctx, of(want(name, 3))), store.ErrLost)
	_, err = s.List(ctx)
	check("List", err)
	_, err = s.Break(ctx, name)
	check("Break", err)
}

// maxLease is the longest lease that there can be.
const maxLease = dlock.MaxTTL + time.Hour

// script is garbage read from the bytes of a fuzz target: commands that put
// values of all types at the keys of a name, with words of the format and
// others.
func script(garbage []byte, name string) (commands [][]string) {
	keys := redis.KeysOf(name)
	r := want(name, 1)
	w := want(name, 2)
	next := func() int {
		if len(garbage) == 0 {
			return 0
		}
		b := garbage[0]
		garbage = garbage[1:]
		return int(b)
	}
	ms := fmt.Sprint(time.Now().Add(time.Minute).UnixMilli())
	words := []string{
		"E:" + r.ID, "L:" + r.ID, "T:" + r.Owner, "W:" + r.Owner, "E:" + w.ID, "W:" + w.Owner, "holds", "waits", "counts",
		"17 x " + r.Owner + " label", "1 17 s " + r.Owner + " label", "1 1 x " + w.Owner + " 2000 abcdef label", "b",
		"1", "0", "-1", "2", "x17=1", "s17=1", "s17=1 s18=1", r.ID, r.ID + " " + w.ID, "h:" + r.ID, "q:" + w.ID, "d:" + w.ID, "h:x", "q:", "d:",
		"", "x", "nan", "inf", "-inf", "1e300", "99999999999999999999", "9007199254740992", "9007199254740991", "1.5", "0x10", ms, "-4503599627370495",
		"-4503599627370496", "1125899906842624", "1127695205617664", "\x00\xff\r\n", strings.Repeat("9", 400), "E:", "L:", "buried", "L:zz",
		r.ID + " " + ms + " 17 x " + r.Owner + " label\n", w.ID + " " + ms + " 1 x " + w.Owner + " 2000 abcdef label\n", "2 1 17", "1 0 3", r.ID + " 1.5e300000000 17 x o \n",
	}
	scores := []string{"1", "0", "-1", "inf", "-inf", "1e300", ms, "1.5", "-4503599627370495", "-4503599627370494", "1125899906842625", "1127695205617664", "9007199254740992"}
	word := func() string {
		i := next()
		if i < 200 {
			return words[i%len(words)]
		}
		n := min(i-200, len(garbage))
		s := string(garbage[:n])
		garbage = garbage[n:]
		return s
	}
	for len(garbage) > 0 && len(commands) < 12 {
		key := keys[next()%len(keys)]
		op := next() % 12
		count := next()%4 + 1
		c := []string{"", key}
		switch op {
		case 0:
			c = []string{"SET", key, word()}
		case 1:
			c = []string{"RPUSH", key, word()}
		case 2:
			c = []string{"SADD", key, word()}
		case 3:
			c = []string{"XADD", key, "*", "f", word()}
		case 4, 5, 6:
			c[0] = "HSET"
			for range count {
				c = append(c, word(), word())
			}
		case 7, 8:
			c[0] = "ZADD"
			for range count {
				c = append(c, scores[next()%len(scores)], word())
			}
		case 9:
			c = []string{"DEL", key}
		case 10:
			c = []string{"HDEL", key, word()}
		case 11:
			c = []string{"PEXPIRE", key, fmt.Sprint(1 + next()*100)}
		}
		commands = append(commands, c)
	}
	return commands
}

// FuzzFault43Garbage writes garbage over a lock that is free, held, or held and
// waited for. No call panics or hangs; each gives an answer or a typed error;
// and once all holds are broken the lock can be taken: nothing that is no lock
// looks for ever like one that is held.
func FuzzFault43Garbage(f *testing.F) {
	for kind := range byte(9) {
		for key := range byte(3) {
			for _, before := range []byte{0, 1, 2, 3, 128, 129, 130, 131} {
				f.Add([]byte{before, key, kind, 1, 13, 9, 28, 31})
				f.Add([]byte{before, key, kind, 2, 6, 31, 7, 33, 8, 34})
			}
		}
	}
	f.Add([]byte{130, 1, 10, 0, 0})                       // the record of the hold is gone
	f.Add([]byte{130, 1, 10, 0, 4})                       // that of the waiter
	f.Add([]byte{130, 1, 4, 0, 6, 16})                    // holds = 2
	f.Add([]byte{130, 1, 4, 0, 7, 15})                    // exclusive = -1
	f.Add([]byte{130, 1, 4, 0, 8, 36})                    // serial near 2^53
	f.Add([]byte{130, 1, 4, 0, 8, 33})                    // serial = 1e300
	f.Add([]byte{130, 1, 4, 0, 1, 28})                    // a count that is no number
	f.Add([]byte{130, 1, 4, 0, 3, 28})                    // nobody waits
	f.Add([]byte{130, 1, 4, 0, 2, 28})                    // tokens
	f.Add([]byte{130, 2, 7, 0, 3, 22})                    // a deadline of inf
	f.Add([]byte{130, 2, 7, 0, 5, 22})                    // of 1e300
	f.Add([]byte{130, 2, 7, 0, 7, 22})                    // of 1.5
	f.Add([]byte{130, 2, 7, 0, 4, 23})                    // a place of -inf
	f.Add([]byte{130, 2, 7, 0, 3, 24})                    // a waiter's deadline of inf
	f.Add([]byte{130, 2, 7, 0, 6, 25})                    // a hold nobody knows
	f.Add([]byte{130, 2, 7, 0, 0, 26})                    // a place of nobody
	f.Add([]byte{130, 2, 7, 0, 10, 29})                   // a member of no kind
	f.Add([]byte{130, 1, 10, 0, 1})                       // a count is gone
	f.Add([]byte{130, 1, 4, 0, 1, 33})                    // it is 1e300
	f.Add([]byte{0, 1, 4, 1, 0, 9, 1, 13, 1, 11, 0, 200}) // a lone hold that was planted
	server := redistest.Start(f)
	admin := server.Client() // the methods of server are for f
	tell := func(args ...string) {
		_ = admin.Do(context.Background(), admin.B().Arbitrary(args...).Build()).Error()
	}
	f.Fuzz(func(t *testing.T, garbage []byte) {
		listed := 64
		if len(garbage) > 0 && garbage[0] >= 128 {
			listed = 0
		}
		s := openListed(t, server.URL(), listed)
		const name = "garbage"
		tell("FLUSHALL")
		if len(garbage) > 0 {
			r, w := want(name, 1), want(name, 2)
			w.Queue = true
			for n, req := range []store.Request{r, w}[:min(int(garbage[0]%4), 2)] {
				g, err := s.Acquire(bounded(t), req)
				require.NoError(t, err)
				require.Equal(t, n == 0, g.Held)
			}
			garbage = garbage[1:]
		}
		commands := script(garbage, name)
		for _, c := range commands {
			tell(c...) // some are refused: they do not fit what is there
		}
		everyCall(t, s, name)
		n, err := s.Break(bounded(t), name)
		for n > 0 && err == nil {
			n, err = s.Break(bounded(t), name) // each may promote one who was written into the queue
		}
		if err == nil {
			g, err := s.Acquire(bounded(t), want(name, 4))
			if !mayBe(err) || err == nil && !g.Held {
				t.Errorf("broken, it is not free: %+v, %v", g, err)
			}
		}
		if t.Failed() {
			t.Logf("after %q", commands)
		}
	})
}
