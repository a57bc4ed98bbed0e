package redis_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// says asserts that the error contains all texts, and no part of a script.
func says(t testing.TB, err error, texts ...string) {
	t.Helper()
	require.Error(t, err)
	for _, text := range texts {
		require.ErrorContains(t, err, text)
	}
	require.NotContains(t, err.Error(), "script:")
	noCanary(t, err.Error())
}

// What goes wrong with a URL says what is wrong, and what to do.
func TestOpenErrorsHelp(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.MustDo("ACL", "SETUSER", "locker", "on", ">other", "~*", "&*", "+@all")
	addr := server.Addr
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	for what, tc := range map[string]struct {
		url  string
		says []string
	}{
		"wrong password":           {as("locker", addr), []string{addr, "WRONGPASS", "check user and password", "percent-encoded"}},
		"TLS to a plain port":      {"rediss://" + addr + "?dial_timeout=500ms", []string{addr, "rediss:// asks for TLS", "redis://"}},
		"several hosts":            {"redis://" + addr + ",localhost:" + port, []string{"cluster support disabled", "master_set", "OpenQuorum"}},
		"database out of range":    {"redis://" + addr + "/99", []string{"DB index is out of range", "the number in the URL"}},
		"database is not a number": {"redis://" + addr + "/orders", []string{"the path of the URL is the number of a database"}},
		"unknown parameter":        {"redis://" + addr + "?timeout=3s", []string{"the parameter timeout is unknown", "dial_timeout"}},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := redis.Open(tc.url)
			says(t, err, tc.says...)
		})
	}
}

// A quorum is refused in which one server has several votes.
func TestFault103OneServerTwiceInAQuorum(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	for _, urls := range [][]string{
		{"redis://" + addr, "redis://" + addr, "redis://" + addr},
		{"redis://" + addr, "redis://" + addr + "/1", "redis://localhost:" + port + "?prefix=other"},
	} {
		_, err := redis.OpenQuorum(urls...)
		says(t, err, "nodes 0 and 1 are one server", "fail independently", "give each once")
	}
}

// A plain connection to a server that wants TLS says so.
func TestPlainConnectionToTLS(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			conn.Close() // what a TLS server does with bytes that begin no handshake
		}
	}()
	_, err = redis.Open("redis://" + listener.Addr().String())
	says(t, err, "wants TLS needs rediss://")
}

// What the server refuses says which key or setting, and what to do.
func TestServerErrorsHelp(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a := startProgram(t, server.URL())
	h := a.take("held")
	key := server.MustDo("KEYS", "*lock:held")
	require.Contains(t, key, "lock:held")
	require.NoError(t, h.Unlock())

	for _, set := range [][]string{{"SET", "foreign"}, {"HSET", "a", "b"}} {
		server.MustDo(append([]string{set[0], key}, set[1:]...)...)
		_, err := a.Mutex("held").TryLockContext(bounded(t))
		require.ErrorIs(t, err, store.ErrForeignKey)
		says(t, err, key, "written by another program", "delete it, or choose another Options.Prefix")
		server.MustDo("DEL", key)
	}
	server.MustDo("CONFIG", "SET", "maxmemory", "1")
	_, err := a.Mutex("full").TryLockContext(bounded(t))
	require.ErrorIs(t, err, store.ErrRefused)
	says(t, err, "OOM", "free memory or raise maxmemory")
	server.MustDo("CONFIG", "SET", "maxmemory", "0")

	server.MustDo("REPLICAOF", "127.0.0.1", "1")
	_, err = a.Mutex("m").TryLockContext(bounded(t))
	require.ErrorIs(t, err, redis.ErrNotRun)
	says(t, err, "READONLY", "connect to the master")
	server.MustDo("REPLICAOF", "NO", "ONE")
}
