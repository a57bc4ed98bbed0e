package etcdtest

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/internal/locktest"
)

const long, short = 20 * time.Second, 200 * time.Millisecond

func put(client *clientv3.Client, key string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := client.Put(ctx, key, "1")
	return err
}

// write is for a client whose connection, or leader, is about to change: it does
// not repeat a write by itself.
func write(c *Cluster, client *clientv3.Client, key string) {
	c.t.Helper()
	c.await("a client can write", func() bool { return put(client, key, 2*time.Second) == nil })
}

func has(t *testing.T, client *clientv3.Client, key string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	reply, err := client.Get(ctx, key)
	require.NoError(t, err)
	return len(reply.Kvs) == 1
}

func TestMemberKeepsItsPortAndItsData(t *testing.T) {
	began := time.Now()
	c := Start(t, 1)
	t.Log("member up after", time.Since(began))
	m := c.Members[0]
	require.Equal(t, []string{m.Endpoint}, c.Endpoints())
	require.Equal(t, "etcd://"+m.Endpoint+"/", c.URL())
	require.Same(t, m, c.Leader())
	client := c.Client(t)
	require.NoError(t, put(client, "a", long))

	pid := m.Pid()
	began = time.Now()
	m.Restart()
	t.Log("restart took", time.Since(began))
	require.NotEqual(t, pid, m.Pid())
	require.True(t, has(t, client, "a"))

	m.Kill()
	require.False(t, m.Running())
	require.Error(t, put(client, "b", short))
	m.Restart()
	began = time.Now()
	require.True(t, has(t, client, "a"))
	t.Log("old client served after", time.Since(began))
	require.False(t, has(t, client, "b"))
}

func TestPausedMemberAnswersWhenItGoesOn(t *testing.T) {
	c := Start(t, 1)
	m, client := c.Members[0], c.Client(t)
	require.NoError(t, put(client, "a", long))
	m.Pause()
	require.False(t, m.Running())
	require.ErrorIs(t, put(client, "b", short), context.DeadlineExceeded)
	done := make(chan error, 1)
	go func() { done <- put(client, "c", long) }()
	m.Resume()
	require.NoError(t, <-done)
	m.Pause() // the end of the test must not wait for it
}

func TestShortestLeaseIsASecond(t *testing.T) {
	c := Start(t, 1)
	client := c.Client(t)
	for asked, granted := range map[int64]int64{1: 1, 2: 2} {
		lease, err := client.Grant(context.Background(), asked)
		require.NoError(t, err)
		require.Equal(t, granted, lease.TTL)
	}
}

func TestClustersDoNotMeet(t *testing.T) {
	a, b := Start(t, 1), Start(t, 1)
	require.NoError(t, put(a.Client(t), "a", long))
	require.False(t, has(t, b.Client(t), "a"))
}

func TestCompactLeavesNoOlderRevision(t *testing.T) {
	t.Parallel()
	c := Start(t, 3)
	client := c.Client(t)
	for range 3 {
		require.NoError(t, put(client, "a", long))
	}
	c.Members[1].Kill()
	c.Compact()
	c.Compact()
	for _, m := range []*Member{c.Members[0], c.Members[2]} {
		// Serializable: what this member alone has.
		_, err := c.Client(t, m).Get(context.Background(), "a", clientv3.WithRev(2), clientv3.WithSerializable())
		require.ErrorIs(t, err, rpctypes.ErrCompacted)
	}
	require.True(t, has(t, c.Client(t, c.Members[0]), "a"))
}

func TestBadFlagIsReportedWithTheLog(t *testing.T) {
	f := &locktest.Failing{TB: t}
	require.Panics(t, func() { Start(f, 1, "--heartbeat-interval=often") })
	require.Contains(t, f.Why, "the etcd server ended as it started")
	require.Contains(t, f.Why, "often")
}

func TestMissingServerIsNamed(t *testing.T) {
	f := &locktest.Failing{TB: t}
	t.Setenv("DLOCK_ETCD", "/no/such/program")
	require.Panics(t, func() { Start(f, 1) })
	require.Contains(t, f.Why, "DLOCK_ETCD")

	t.Setenv("DLOCK_ETCD", "")
	root := t.TempDir()
	require.NoError(t, os.WriteFile(root+"/go.mod", []byte("module github.com/dlock-go/dlock\n"), 0o600))
	require.NoError(t, os.MkdirAll(root+"/tools/etcd", 0o700))
	require.NoError(t, os.WriteFile(root+"/tools/etcd/go.mod", []byte("require (\n\tgo.etcd.io/etcd/server/v3 v3.0.1 // indirect\n)\n"), 0o600))
	t.Chdir(root + "/tools")
	require.Panics(t, func() { Start(f, 1) })
	require.Contains(t, f.Why, "the etcd server v3.0.1 is not built: run `.ci/etcd`")
	require.Contains(t, f.Why, "`make test`")
	t.Chdir("/")
	require.Panics(t, func() { Start(f, 1) })
	require.Contains(t, f.Why, "not in the repository of dlock")
}
