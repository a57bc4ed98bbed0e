package redistest

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClockJumps(t *testing.T) {
	began := time.Now()
	s, clock := StartWithClock(t)
	t.Log("server with clock up after", time.Since(began))
	// ahead is how far the clock of the server is ahead of ours.
	ahead := func() float64 {
		before := time.Now()
		f := strings.Fields(s.MustDo("TIME"))
		sec, err := strconv.ParseInt(f[0], 10, 64)
		require.NoError(t, err)
		usec, err := strconv.ParseInt(f[1], 10, 64)
		require.NoError(t, err)
		return time.Unix(sec, usec*1000).Sub(before).Seconds()
	}
	s.MustDo("PING") // it connects
	require.InDelta(t, 0, ahead(), 1)

	s.MustDo("SET", "a", "1", "PX", "60000")
	clock.Jump(30 * time.Second)
	require.InDelta(t, 30, ahead(), 1)
	require.Equal(t, "1", s.MustDo("GET", "a"))
	clock.Jump(-time.Hour)
	require.InDelta(t, -3600, ahead(), 1)
	ttl, err := s.Do("PTTL", "a").AsInt64()
	require.NoError(t, err)
	require.InDelta(t, 3660_000, ttl, 1000)
	require.Equal(t, "1", s.MustDo("GET", "a"))
	clock.Jump(2 * time.Minute)
	require.Empty(t, s.MustDo("GET", "a"), "expired")

	s.Restart()
	require.InDelta(t, 120, ahead(), 1)
	clock.Jump(0)
	require.InDelta(t, 0, ahead(), 1)
}
