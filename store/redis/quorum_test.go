package redis_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/dlock-go/dlock/store/quorum"
	"github.com/dlock-go/dlock/store/redis"
)

// quorumOver opens a handle on the locks of some servers, with a node timeout that
// a busy machine keeps too.
func quorumOver(t testing.TB, opts quorum.Options, addresses ...string) *quorum.Store {
	t.Helper()
	var nodes []store.Store
	for _, addr := range addresses {
		n, err := redis.OpenNode("redis://" + addr)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	opts.Own = true
	q, err := quorum.NewWithOptions(&opts, nodes...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	connected(t, q, len(addresses))
	return q
}

// connected waits until so many nodes answer.
func connected(t testing.TB, q *quorum.Store, nodes int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		views, err := q.Views(t.Context(), "connected")
		answered := 0
		for _, v := range views {
			if v.Err == nil {
				answered++
			}
		}
		if err == nil && answered >= nodes {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no connection: %+v, %v", views, err)
		}
	}
}

// TestConformanceQuorum: over real servers, which have just been started and lose
// nothing meanwhile.
func TestConformanceQuorum(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var addresses []string
			var servers []*redistest.Server
			for range n {
				server := redistest.Start(t)
				server.Client() // connects, which only this goroutine may have fail
				servers = append(servers, server)
				addresses = append(addresses, server.Addr)
			}
			over := func(t testing.TB) store.Store {
				return quorumOver(t, quorum.Options{Durable: true, NodeTimeout: 20 * time.Second}, addresses...)
			}
			conformance.RunSuite(t, conformance.Suite{
				New:  over,
				Peer: func(t testing.TB, _ store.Store) store.Store { return over(t) },
				Plant: func(_ testing.TB, _ store.Store, name string) {
					for _, server := range servers {
						server.MustDo("SET", redis.LockKey(name), "not a lock")
					}
				},
				Unfair: true,
				Apart:  true,
				TTL:    400 * time.Millisecond,
				// More would keep each other from answering within a lease, and be repeated.
				Parallel: 6,
			})
		})
	}
}

// TestOpenQuorum: a minority may be down, and joins when it is up.
func TestOpenQuorum(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	urls := []string{servers[0].URL(), servers[1].URL(), servers[2].URL()}
	servers[2].Kill()
	q, err := redis.OpenQuorum(urls...)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	views, err := q.Views(t.Context(), "n")
	if err != nil || views[0].Err != nil || views[1].Err != nil || views[2].Err == nil {
		t.Errorf("Views: got %+v, %v", views, err)
	}
	servers[2].Restart()
	connected(t, q, 3)

	servers[1].Kill()
	servers[2].Kill()
	start := time.Now()
	if q, err := redis.OpenQuorum(urls...); err == nil {
		q.Close()
		t.Error("a quorum without a majority")
	} else if took := time.Since(start); took > 12*time.Second {
		t.Errorf("it took %v to say %v", took, err)
	}
}

func TestOpenQuorumInvalid(t *testing.T) {
	t.Parallel()
	for _, urls := range [][]string{{}, {"redis://127.0.0.1:1"}, {"redis://a", "redis://b", "http://c"}} {
		q, err := redis.OpenQuorum(urls...)
		if err == nil {
			q.Close()
			t.Errorf("%q: no error", urls)
		}
		if len(urls) == 3 && !errors.Is(err, redis.ErrInvalidURL) {
			t.Errorf("%q: got %v", urls, err)
		}
	}
}

// TestAgeOfAServer: it never says that it has been up for longer than it has, though it
// tells the seconds of its start and of now without their fractions.
func TestAgeOfAServer(t *testing.T) {
	t.Parallel()
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1500 * time.Millisecond)))
	began := time.Now()
	server := redistest.Start(t)
	s := open(t, server.URL())
	for time.Since(began) < 3500*time.Millisecond {
		_, age, err := s.Incarnation(bounded(t))
		require.NoError(t, err)
		require.LessOrEqual(t, age, time.Since(began))
		time.Sleep(20 * time.Millisecond)
	}
	_, age, err := s.Incarnation(bounded(t))
	require.NoError(t, err)
	require.GreaterOrEqual(t, age, time.Second)
}

// TestLifeOfAMasterThatWasReplaced: one that has been a replica for a while, and lost by that
// what the other had not got, leads another life as a master again, though it never
// restarted.
func TestLifeOfAMasterThatWasReplaced(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	replica := startReplica(t, server)
	s := open(t, server.URL())
	life := func() string {
		t.Helper()
		id, _, err := s.Incarnation(bounded(t))
		require.NoError(t, err)
		return id
	}
	first := life()
	require.Equal(t, first, life())
	replica.MustDo("REPLICAOF", "NO", "ONE")
	host, port := splitAddr(replica.Addr)
	server.MustDo("REPLICAOF", host, port)
	until(t, "it has followed", func() bool { return field(server, "replication", "master_link_status") == "up" })
	server.MustDo("REPLICAOF", "NO", "ONE")
	require.NotEqual(t, first, life())
}

// TestClusterIsNoNode: a quorum cannot notice that a cluster has lost locks, so the cluster has no vote.
func TestClusterIsNoNode(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t, false)
	s := open(t, servers.URL())
	_, _, err := s.Incarnation(bounded(t))
	require.ErrorIs(t, err, store.ErrRefused)
	require.NotErrorIs(t, err, store.ErrUnsupported, "which says that it loses nothing")
	nodes := []store.Store{s, open(t, redistest.Start(t).URL()), faultstore.New(memory.New())}
	nodes[2].(*faultstore.Store).Outage(faultstore.DropRequest())
	two, err := quorum.NewWithOptions(&quorum.Options{Fresh: true, Durable: true}, nodes...)
	require.NoError(t, err)
	defer two.Close()
	_, err = two.Acquire(bounded(t), want("n", 1))
	require.ErrorContains(t, err, "a cluster is no node of a quorum")
	q, err := redis.OpenQuorum(redistest.Start(t).URL(), redistest.Start(t).URL(), servers.URL())
	if err == nil {
		q.Close()
	}
	require.ErrorContains(t, err, "node 2: redis: store refused the request: a cluster")
}
