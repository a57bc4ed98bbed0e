package redis_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// A user has lost the right to one name. The other holds in the same call are renewed.
func TestRenewalsBesideANameWithoutRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.MustDo("ACL", "SETUSER", "locker", "on", ">"+canary, "~*", "&*", "+@all")
	s := open(t, as("locker", server.Addr))
	var refs []store.Ref
	for i := range 5 {
		r := want(fmt.Sprint("name-", i), i)
		_, err := s.Acquire(bounded(t), r)
		require.NoError(t, err)
		refs = append(refs, of(r))
	}
	rights := []string{"ACL", "SETUSER", "locker", "resetkeys"}
	for _, name := range []string{"name-0", "name-1", "name-3", "name-4"} {
		for _, key := range redis.KeysOf(name) {
			rights = append(rights, "~"+key)
		}
	}
	server.MustDo(rights...)
	for i, err := range s.Renew(bounded(t), refs) {
		if i == 2 {
			require.ErrorIs(t, err, store.ErrRefused)
			continue
		}
		require.NoError(t, err, refs[i].Name)
	}
}

// One call renews a lock of which a record was damaged by hand, and one whose key is another
// program's. That key stays as it is.
func TestRenewalOfDamagedLeavesForeignAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openIndexed(t, server.URL())
	var refs []store.Ref
	for i := range 3 {
		r := want("damaged", i)
		r.Mode, r.TTL = store.Shared, time.Minute
		if i < 2 {
			r.TTL = lease
		}
		g, err := s.Acquire(bounded(t), r)
		require.NoError(t, err)
		require.True(t, g.Held)
		refs = append(refs, of(r))
	}
	// The first two are dead by the time of the renewal, and the second cannot be read.
	server.MustDo("HSET", redis.LockKey("damaged"), "E:"+refs[1].ID, "junk")
	foreign := redis.LockKey("foreign")
	server.MustDo("HSET", foreign, "a", "1", "b", "2")
	until(t, "two are dead", func() bool {
		now, err := strconv.ParseInt(strings.Fields(server.MustDo("TIME"))[0], 10, 64)
		require.NoError(t, err)
		score, err := strconv.ParseFloat(server.MustDo("ZSCORE", redis.KeysOf("damaged")[2], "h:"+refs[1].ID), 64)
		require.NoError(t, err)
		return float64(now)*1000 > score
	})
	results := s.Renew(bounded(t), []store.Ref{refs[2], of(want("foreign", 9))})
	require.ErrorIs(t, results[0], store.ErrForeignKey)
	require.ErrorIs(t, results[1], store.ErrForeignKey)
	require.Equal(t, "2", server.MustDo("HLEN", foreign), "fields of the other program's key")
}
