package redis_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// alone runs a test once more, in a process of its own, and reports whether this is that
// process: a panic of rueidis ends the process and not only the test.
func alone(t *testing.T) bool {
	t.Helper()
	const env = "DLOCK_TEST_ALONE"
	if os.Getenv(env) != "" {
		return true
	}
	cmd := exec.CommandContext(bounded(t), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), env+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// confirming is a store that wants one replica, on a client of a user who always pipelines.
func confirming(t *testing.T, server *redistest.Server) *redis.Store {
	t.Helper()
	s, err := redis.New(manyConnections(t, server.Addr), &redis.Options{MinReplicas: 1, ReplicaTimeout: 50 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// The server refuses all that writes, and PING, while replicas are waited for on pipelined
// connections. Calls fail, and that is all that happens.
func TestFault31RefusedWithReplicas(t *testing.T) {
	t.Parallel()
	if !alone(t) {
		return
	}
	server := redistest.Start(t, "enable-protected-configs yes")
	s := confirming(t, server)
	_, err := s.Acquire(bounded(t), want("a", 1)) // a connection is in the pool
	require.ErrorIs(t, err, redis.ErrTooFewReplicas)
	heal := misconfigure(t, server)
	for i := range 5 {
		_, err := s.Acquire(bounded(t), want("b", 10+i))
		require.ErrorContains(t, err, "MISCONF")
	}
	heal()
	_, err = s.Acquire(bounded(t), want("c", 20))
	require.ErrorIs(t, err, redis.ErrTooFewReplicas)
}

// The server is busy with a script while replicas are waited for on pipelined connections.
func TestFault28BusyWithReplicasPipelined(t *testing.T) {
	t.Parallel()
	if !alone(t) {
		return
	}
	server := redistest.Start(t, "busy-reply-threshold 50")
	s := confirming(t, server)
	_, err := s.Acquire(bounded(t), want("a", 1))
	require.ErrorIs(t, err, redis.ErrTooFewReplicas)
	calm := occupy(t, server)
	for i := range 5 {
		_, err := s.Acquire(bounded(t), want("b", 10+i))
		require.ErrorContains(t, err, "BUSY")
	}
	calm()
	_, err = s.Acquire(bounded(t), want("c", 20))
	require.ErrorIs(t, err, redis.ErrTooFewReplicas)
}

// The server stands still, and there is no connection that a call which waits for replicas
// could take. It returns when its time is over, for the connection is not there yet.
func TestFault11NoConnectionInTime(t *testing.T) {
	t.Parallel()
	const patience = 200 * time.Millisecond
	server := redistest.Start(t)
	s := open(t, server.URL()+confirmed)
	server.Pause()
	t.Cleanup(server.Resume)
	inTime := func(what string, call func(ctx context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, call(ctx), context.DeadlineExceeded, what)
		require.Less(t, time.Since(began), patience+slack, what)
	}
	inTime("Acquire", func(ctx context.Context) error {
		_, err := s.Acquire(ctx, want("a", 1))
		return err
	})
	inTime("Renew", func(ctx context.Context) error {
		return errors.Join(s.Renew(ctx, []store.Ref{of(want("a", 1))})...)
	})
	server.Resume()
	require.NoError(t, s.Close())
	require.Empty(t, server.MustDo("KEYS", "*"), "a call was sent behind its time")
}

// poolOfOne is a client that has one dedicated connection at a time.
func poolOfOne(t *testing.T, server *redistest.Server) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr}, ForceSingleClient: true, DisableCache: true, BlockingPoolSize: 1,
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// Somebody else has the only connection of the client's pool. Neither a call nor Close waits until it is
// given back, and nothing uses it afterwards.
func TestFault11NoPlaceInThePool(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := poolOfOne(t, server)
	s, err := redis.New(client, &redis.Options{MinReplicas: 1, ReplicaTimeout: 50 * time.Millisecond})
	require.NoError(t, err)
	_, giveBack := client.Dedicate()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = s.Acquire(ctx, want("a", 1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	began := time.Now()
	require.NoError(t, s.Close())
	require.Less(t, time.Since(began), 10*time.Second+slack)
	connections := func() string { return field(server, "clients", "connected_clients") }
	before := connections()
	giveBack()
	until(t, "the connection that came late is closed", func() bool { return connections() < before })
	require.Empty(t, server.MustDo("KEYS", "*"), "a call was sent behind its time")
}
