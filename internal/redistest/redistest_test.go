package redistest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/locktest"
)

func TestServerKeepsItsPortAndLosesItsData(t *testing.T) {
	s := Start(t, "maxmemory 64mb")
	require.Equal(t, "maxmemory\n67108864", s.MustDo("CONFIG", "GET", "maxmemory"))
	require.Equal(t, "OK", s.MustDo("SET", "a", "1"))
	require.Equal(t, "2", s.MustDo("INCR", "a"))
	require.Equal(t, "2\n", s.MustDo("MGET", "a", "b"))
	require.True(t, strings.HasPrefix(s.MustDo("INFO", "server"), "# Server"))
	addr, pid := s.Addr, s.Pid()

	s.Restart()
	require.Equal(t, addr, s.Addr)
	require.NotEqual(t, pid, s.Pid())
	require.Equal(t, "", s.MustDo("GET", "a"))

	s.Kill()
	require.False(t, s.Running())
	require.Error(t, s.Do("PING").Error())
	s.Restart()
	require.Equal(t, "PONG", s.MustDo("PING"))
}

func TestServerKeepsWhatItIsConfiguredToKeep(t *testing.T) {
	s := Start(t, "appendonly yes", "appendfsync always")
	s.MustDo("SET", "a", "1")
	s.Restart()
	require.Equal(t, "1", s.MustDo("GET", "a"))
}

func TestPausedServerAnswersWhenItGoesOn(t *testing.T) {
	s := Start(t)
	s.MustDo("PING")
	s.Pause()
	require.False(t, answers(s.Addr, s.Pid()))
	reply := make(chan string, 1)
	go func() { text, _ := s.Do("ECHO", "late").ToString(); reply <- text }()
	s.Resume()
	require.Equal(t, "late", <-reply)
	s.Pause() // the end of the test must not wait for it
}

func TestServersDoNotMeet(t *testing.T) {
	a, b := Start(t), Start(t)
	a.MustDo("SET", "a", "1")
	require.Empty(t, b.MustDo("GET", "a"))
}

func TestBadConfigurationIsReportedWithTheLog(t *testing.T) {
	f := &locktest.Failing{TB: t}
	require.Panics(t, func() { Start(f, "maxmemory lots") })
	require.Contains(t, f.Why, "redis-server ended as it started")
	require.Contains(t, f.Why, "maxmemory lots")
}
