package redis_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store/redis"
)

// A hold of long life is handed over to one of two who wait and have little patience. What
// is left when all of them die goes with the last, and not with the lease that is over.
func TestKeysExpireWithTheLastEntry(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, listed := range []int{0, 64} {
		keysExpireWithTheLastEntry(t, server, listed)
		server.MustDo("FLUSHALL")
	}
}

func keysExpireWithTheLastEntry(t *testing.T, server *redistest.Server, listed int) {
	s := openListed(t, server.URL(), listed)
	const short, long = 10 * time.Second, 30 * time.Second
	for i, patience := range [][]time.Duration{{short, long}, {long, short}} {
		held := want(strconv.Itoa(i), 1)
		held.TTL = time.Hour
		_, err := s.Acquire(bounded(t), held)
		require.NoError(t, err)
		for k, p := range patience {
			r := want(held.Name, 2+k)
			r.Queue, r.TTL, r.WaitTTL = true, time.Hour, p
			_, err := s.Acquire(bounded(t), r)
			require.NoError(t, err)
		}
		require.NoError(t, s.Release(bounded(t), of(held)))
		for _, key := range redis.KeysOf(held.Name)[1:] {
			if listed > 0 && key == redis.KeysOf(held.Name)[2] {
				require.Equal(t, "0", server.MustDo("EXISTS", key), "a listed name has one key")
				continue
			}
			ms, err := strconv.Atoi(server.MustDo("PTTL", key))
			require.NoError(t, err)
			require.InDelta(t, long, time.Duration(ms)*time.Millisecond, float64(slack), "%s with %v", key, patience)
		}
	}
}
