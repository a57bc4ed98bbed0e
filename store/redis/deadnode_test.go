package redis_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// A node of a cluster is dead, of all addresses the lowest, where the first
// subscription begins. Locks elsewhere are handed over by push as before.
func TestFirstNodeOfAClusterIsDead(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, false, "cluster-require-full-coverage no")
	dead := cluster.Nodes[slices.Index(cluster.Addrs(), slices.Min(cluster.Addrs()))]
	held, waits := newRequest(0), newRequest(1)
	master := dead
	for i := 0; master == dead; i++ {
		held.Name = "name-" + strconv.Itoa(i)
		master = cluster.Master(redis.Slot(redis.LockKey(held.Name)))
	}
	waits.Name, waits.Queue = held.Name, true // and asks by itself every 20 s
	from, to := open(t, cluster.URL()), open(t, cluster.URL())
	events := make(chan store.Event, 10)
	to.Listen(func(e store.Event) { events <- e })
	if _, err := from.Acquire(t.Context(), held); err != nil {
		t.Fatal(err)
	}

	dead.Kill()
	locktest.Queue(t, to, waits)
	locktest.Poll(t, "it listens", 5*time.Second, func() bool { return len(channels(master)) == 1 })
	locktest.Release(t, from, held)
	for late := time.After(locktest.Soon); ; {
		select {
		case e := <-events:
			if e.ID == waits.ID {
				return
			}
		case <-late:
			t.Fatal("the waiter is not told that it is its turn")
		}
	}
}

// The replica of one shard is gone: what is held there is not confirmed, and what
// is held elsewhere is renewed in the same call, though it comes last.
func TestRenewalsBesideAShardWithoutReplica(t *testing.T) {
	t.Parallel()
	const each = 5 // partitions
	cluster := redistest.StartCluster(t, true)
	s := open(t, cluster.URL()+"&min_replicas=1")
	sick := cluster.Master(redis.Slot(redis.LockKey("name-0")))
	var sickRefs, soundRefs []store.Ref
	seen := make(map[int]bool)
	for i := 0; len(sickRefs) < each || len(soundRefs) < each; i++ {
		req := newRequest(i)
		refs := &soundRefs
		if cluster.Master(redis.Slot(redis.LockKey(req.Name))) == sick {
			refs = &sickRefs
		}
		if p := redis.Partition(req.Name); seen[p] || len(*refs) == each {
			continue
		} else {
			seen[p] = true
		}
		if _, err := s.Acquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		*refs = append(*refs, locktest.RefTo(req))
	}

	cluster.Nodes[slices.Index(cluster.Nodes, sick)+3].Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // of which each sick one takes 1 s
	defer cancel()
	for i, err := range s.Renew(ctx, slices.Concat(sickRefs, soundRefs)) {
		if i < each && !errors.Is(err, redis.ErrTooFewReplicas) {
			t.Errorf("hold %d, where the replica is gone: %v", i, err)
		}
		if i >= each && err != nil {
			t.Errorf("hold %d, where the replica is there: %v", i, err)
		}
	}
}

// A slot is served by no node, and another node has lost its scripts. What is held there is
// renewed all the same, though the call for the first goes on until it has no time left.
func TestRenewalsBesideASlotThatIsNotServed(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, false, "cluster-require-full-coverage no")
	s := open(t, cluster.URL())
	sick, sound := newRequest(0), newRequest(1)
	slot := redis.Slot(redis.LockKey(sick.Name))
	sickNode := cluster.Master(slot)
	for i := 1; cluster.Master(redis.Slot(redis.LockKey(sound.Name))) == sickNode; i++ {
		sound = newRequest(i)
	}
	for _, req := range []store.Request{sick, sound} {
		if _, err := s.Acquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	sickNode.MustDo("CLUSTER", "DELSLOTS", strconv.Itoa(slot))
	cluster.Master(redis.Slot(redis.LockKey(sound.Name))).MustDo("SCRIPT", "FLUSH")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	errs := s.Renew(ctx, []store.Ref{locktest.RefTo(sick), locktest.RefTo(sound)})
	if errs[0] == nil {
		t.Error("the fault has not bitten")
	}
	if errs[1] != nil {
		t.Errorf("the one whose slot is served: %v", errs[1])
	}
}

// A slot is on its way to a node that hangs. A hold whose keys are still on the old node is renewed, though the call for
// one whose keys have moved goes on until it has no time left.
func TestRenewalsBesideAKeyOnANodeThatHangs(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, false)
	s := open(t, cluster.URL())
	moved, stays := newRequest(0), newRequest(1)
	for i := 1; redis.Partition(stays.Name) != redis.Partition(moved.Name); i++ {
		stays = newRequest(i)
	}
	for _, req := range []store.Request{moved, stays} {
		if _, err := s.Acquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	slot := redis.Slot(redis.LockKey(moved.Name))
	from := cluster.Master(slot)
	to := cluster.Nodes[(slices.Index(cluster.Nodes, from)+1)%3]
	cluster.BeginMove(slot, to)
	host, port, err := net.SplitHostPort(to.Addr)
	if err != nil {
		t.Fatal(err)
	}
	from.MustDo(append([]string{"MIGRATE", host, port, "", "0", "5000", "KEYS"}, redis.KeysOf(moved.Name)...)...)
	to.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	errs := s.Renew(ctx, []store.Ref{locktest.RefTo(moved), locktest.RefTo(stays)})
	if errs[0] == nil {
		t.Error("the fault has not bitten")
	}
	if errs[1] != nil {
		t.Errorf("the one whose keys have not moved: %v", errs[1])
	}
}

// One node hangs while it is sent the text of a script. The others get theirs.
func TestScriptsBesideANodeThatHangs(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, false)
	sick := cluster.Nodes[0]
	proxy := redistest.StartProxy(t, sick.Addr)
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: cluster.Addrs(),
		DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			if addr == sick.Addr {
				addr = proxy.Addr
			}
			return d.DialContext(ctx, "tcp", addr)
		},
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	s := newStore(t, c)
	sent := make(chan struct{})
	proxy.Plan(func(_ int, args []string) redistest.Action {
		if args[0] == "EVAL" {
			close(sent)
			return redistest.Hold
		}
		return redistest.Pass
	})
	hangs := make(chan error, 1)
	go func() {
		_, err := s.Acquire(bounded(t), long(want(nameOfNode(cluster, 0), 0)))
		hangs <- err
	}()
	<-sent
	for i := 1; i < len(cluster.Nodes); i++ {
		_, err := s.Acquire(bounded(t), long(want(nameOfNode(cluster, i), i)))
		require.NoError(t, err)
	}
	proxy.Unhold()
	require.NoError(t, <-hangs)
}
