package redis_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// A call ends when it is cancelled, long before its deadline, though the server stands still.
func TestCancelledOnAStoppedServer(t *testing.T) {
	t.Parallel()
	for what, make := range map[string]func(*testing.T, *redistest.Server) *redis.Store{
		"a client of the store": func(t *testing.T, server *redistest.Server) *redis.Store {
			return open(t, server.URL())
		},
		"a client of the user": func(t *testing.T, server *redistest.Server) *redis.Store {
			c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, ForceSingleClient: true, DisableCache: true})
			require.NoError(t, err)
			t.Cleanup(c.Close)
			return newStore(t, c)
		},
		"with MinReplicas": func(t *testing.T, server *redistest.Server) *redis.Store {
			startReplica(t, server)
			return open(t, server.URL()+"?min_replicas=1&replica_timeout=20s")
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			s := make(t, server)
			r := want("a", 1)
			r.TTL, r.WaitTTL = time.Minute, time.Minute
			_, err := s.Acquire(bounded(t), r)
			require.NoError(t, err)
			server.Pause()
			defer server.Resume()
			for call, do := range map[string]func(context.Context) error{
				"Acquire": func(ctx context.Context) error { _, err := s.Acquire(ctx, want("a", 2)); return err },
				"Renew":   func(ctx context.Context) error { return s.Renew(ctx, []store.Ref{of(r)})[0] },
				"Release": func(ctx context.Context) error { return s.Release(ctx, of(r)) },
				"Inspect": func(ctx context.Context) error { _, err := s.Inspect(ctx, "a"); return err },
			} {
				ctx, cancel := context.WithTimeout(t.Context(), ample)
				time.AfterFunc(100*time.Millisecond, cancel)
				began := time.Now()
				require.ErrorIs(t, do(ctx), context.Canceled, call)
				require.Less(t, time.Since(began), lease, call)
			}
		})
	}
}
