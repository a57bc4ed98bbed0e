package redisfence_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/fence/redisfence"
	"github.com/dlock-go/dlock/internal/redistest"
)

func set(t *testing.T, r *redisfence.Register, token uint64, value string) {
	t.Helper()
	require.NoError(t, r.Set(t.Context(), token, value))
}

func get(t *testing.T, r *redisfence.Register, token uint64) string {
	t.Helper()
	value, ok, err := r.Get(t.Context(), token)
	require.NoError(t, err)
	require.True(t, ok)
	return value
}

// refuses asserts that an access with the token is refused, of either kind.
func refuses(t *testing.T, r *redisfence.Register, token, highest uint64) {
	t.Helper()
	value, ok, err := r.Get(t.Context(), token)
	for _, err := range []error{err, r.Set(t.Context(), token, "stale")} {
		var stale *fence.StaleError
		require.ErrorIs(t, err, fence.ErrStale)
		require.ErrorAs(t, err, &stale)
		require.Equal(t, fence.StaleError{Token: token, Highest: highest}, *stale)
	}
	require.False(t, ok)
	require.Empty(t, value)
}

func TestRegister(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := redisfence.New(server.Client(), "r")

	_, ok, err := r.Get(t.Context(), 41)
	require.NoError(t, err)
	require.False(t, ok, "never set")
	refuses(t, r, 40, 41) // by a read alone
	set(t, r, 41, "a")
	require.Equal(t, "a", get(t, r, 41))
	set(t, r, 41, "")
	require.Equal(t, "", get(t, r, 41), "set to nothing is set")

	require.Equal(t, "", get(t, r, 42))
	refuses(t, r, 41, 42)
	binary := "\x00\xff\r\n'\""
	set(t, r, 43, binary)
	refuses(t, r, 42, 43)
	require.Equal(t, binary, get(t, r, 43))
	require.Equal(t, "token\n43\nvalue\n"+binary, server.MustDo("HGETALL", "r"))

	// A server that has forgotten the script is given its text.
	server.MustDo("SCRIPT", "FLUSH")
	require.Equal(t, binary, get(t, r, 43))
}

// Lua's numbers would take neighbours for equal, and compare others as text.
func TestTokensAreCompared(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	tokens := []uint64{
		0, 1, 2, 9, 10, 11, 99, 100, 999_999_999_999_999, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<53 + 2,
		1<<63 - 1, 1 << 63, 1<<63 + 1, 9_999_999_999_999_999_999, 10_000_000_000_000_000_000, math.MaxUint64 - 1, math.MaxUint64,
	}
	for i, highest := range tokens {
		r := redisfence.New(server.Client(), strconv.Itoa(i))
		set(t, r, highest, "v")
		for _, lower := range tokens[:i] {
			refuses(t, r, lower, highest)
		}
		require.Equal(t, "v", get(t, r, highest))
		for _, higher := range tokens[i+1:] {
			require.Equal(t, "v", get(t, r, higher))
			refuses(t, r, higher-1, higher)
		}
	}
}

func TestForeignKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, command := range map[string][]string{
		"string":        {"SET", "k", "v"},
		"list":          {"LPUSH", "k", "v"},
		"no token":      {"HSET", "k", "value", "v"},
		"other hash":    {"HSET", "k", "f", "v"},
		"empty token":   {"HSET", "k", "token", ""},
		"word":          {"HSET", "k", "token", "many"},
		"negative":      {"HSET", "k", "token", "-1"},
		"leading zero":  {"HSET", "k", "token", "042"},
		"fraction":      {"HSET", "k", "token", "4.2"},
		"exponent":      {"HSET", "k", "token", "1e9"},
		"line end":      {"HSET", "k", "token", "42\n"},
		"over 64 bits":  {"HSET", "k", "token", "18446744073709551616"},
		"far too large": {"HSET", "k", "token", "100000000000000000000"},
	} {
		t.Run(name, func(t *testing.T) {
			server.MustDo("DEL", "k")
			server.MustDo(command...)
			before := server.MustDo("DUMP", "k")
			r := redisfence.New(server.Client(), "k")
			_, _, err := r.Get(t.Context(), math.MaxUint64)
			require.ErrorIs(t, err, redisfence.ErrForeignKey)
			require.ErrorIs(t, r.Set(t.Context(), math.MaxUint64, "v"), redisfence.ErrForeignKey)
			require.NotErrorIs(t, err, fence.ErrStale)
			require.Equal(t, before, server.MustDo("DUMP", "k"))
		})
	}
}

// Other clients may give the script anything.
func TestScriptRefusesTokensThatAreNone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, token := range []string{"", "x", "-1", "042", "1e9", " 42", "18446744073709551616"} {
		err := server.Do("EVAL", redisfence.Script, "1", "k", token, "v").Error()
		require.ErrorContains(t, err, "FENCETOKEN", "%q", token)
	}
	require.Equal(t, "0", server.MustDo("EXISTS", "k"))
}

// Other errors are neither a refusal nor a foreign key, and keep their cause.
func TestOtherErrors(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, DisableCache: true, DisableRetry: true})
	require.NoError(t, err)
	defer client.Close()
	r := redisfence.New(client, "r")
	set(t, r, 1, "v")
	check := func(err error) {
		t.Helper()
		require.Error(t, err)
		require.NotErrorIs(t, err, fence.ErrStale)
		require.NotErrorIs(t, err, redisfence.ErrForeignKey)
	}
	server.MustDo("CONFIG", "SET", "maxmemory", "1")
	check(r.Set(t.Context(), 2, "v"))
	_, _, err = r.Get(t.Context(), 2) // it could not keep an older holder out
	check(err)
	server.MustDo("CONFIG", "SET", "maxmemory", "0")
	server.Kill()
	err = r.Set(t.Context(), 2, "v")
	check(err)
	var said *rueidis.RedisError
	require.False(t, errors.As(err, &said))
}

func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.MustDo("ACL", "SETUSER", "fenced", "on", ">p", "resetkeys", "~r", "resetchannels", "-@all",
		"+evalsha", "+eval", "+hmget", "+hset", "+exists")
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr}, Username: "fenced", Password: "p",
		DisableCache: true, ForceSingleClient: true, ClientSetInfo: rueidis.DisableClientSetInfo,
	})
	require.NoError(t, err)
	defer client.Close()
	r := redisfence.New(client, "r")
	set(t, r, 1, "v")
	require.Equal(t, "v", get(t, r, 2))
}

func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, false)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: cluster.Addrs(), DisableCache: true})
	require.NoError(t, err)
	defer client.Close()
	for i := range 32 {
		r := redisfence.New(client, "register "+strconv.Itoa(i))
		set(t, r, 1, "v")
		require.Equal(t, "v", get(t, r, 2))
		refuses(t, r, 1, 2)
	}
}

// Whatever comes at once: who is served first never sees what comes later, so the
// tokens that one goroutine has admitted bound what another can have admitted.
func TestConcurrentAccess(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := redisfence.New(server.Client(), "r")
	const goroutines, accesses = 8, 300
	var running sync.WaitGroup
	var highest fence.Gate // admitted by the register, before the next access begins
	var refused atomic.Bool
	for range goroutines {
		running.Go(func() {
			for range accesses {
				floor := highest.Highest()
				token := floor - min(floor, 5) + rand.Uint64N(8)
				var err error
				if rand.N(2) == 0 {
					_, _, err = r.Get(t.Context(), token)
				} else {
					err = r.Set(t.Context(), token, strconv.FormatUint(token, 10))
				}
				switch {
				case errors.Is(err, fence.ErrStale):
					refused.Store(true)
				case !assert.NoError(t, err):
					return
				default:
					assert.GreaterOrEqual(t, token, floor, "admitted after a higher one")
					highest.Admit(token) // or a higher one was quicker to tell
				}
			}
		})
	}
	running.Wait()
	last := highest.Highest()
	value, err := strconv.ParseUint(get(t, r, last), 10, 64)
	require.NoError(t, err)
	require.LessOrEqual(t, value, last)
	require.True(t, refused.Load(), "nothing was refused")
}
