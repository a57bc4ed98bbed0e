package zookeeper_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/zookeepertest"
	"github.com/dlock-go/dlock/store"
)

// TestEnsemble: three members, of which one freezes or dies.
func TestEnsemble(t *testing.T) {
	t.Parallel()
	e := zookeepertest.Start(t, 3)
	t.Run("FrozenFollower", func(t *testing.T) { frozenFollower(t, e) })
	t.Run("NoOverlapWhileLeadersChange", func(t *testing.T) { leadersChange(t, e) })
	t.Run("LeaseOfADeadClient", func(t *testing.T) { deadClient(t, e) })
}

// frozenFollower: a handle on a member that stands still goes to another one, and
// its hold is the same there.
func frozenFollower(t *testing.T, e *zookeepertest.Ensemble) {
	f := e.Follower()
	at := open(t, "zk://"+f.Addr+"?session_timeout=1500ms")
	all := open(t, e.URL()+"?session_timeout=1500ms")
	held := request("frozen", 1, false)
	hold(t, at, held)
	f.Pause()
	defer f.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	assert.NotErrorIs(t, at.Renew(ctx, []store.Ref{refOf(held)})[0], store.ErrLost)
	await(t, "the others serve", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		return all.Renew(ctx, []store.Ref{refOf(held)})[0] == nil
	})
	await(t, "the hold is released", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		return all.Release(ctx, refOf(held)) == nil
	})
}

// leadersChange: processes take a lock again and again while the leader is killed
// and its successor freezes. Tokens grow, and no two hold the lock at once.
func leadersChange(t *testing.T, e *zookeepertest.Ensemble) {
	const ttl = 3 * time.Second
	var (
		holding atomic.Int32
		uses    atomic.Int32
		last    atomic.Uint64
		stop    = make(chan struct{})
		running sync.WaitGroup
	)
	for range 3 {
		c, err := dlock.New(open(t, e.URL()+"?session_timeout=1500ms"), &dlock.Options{TTL: ttl})
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				h, err := c.Mutex("leaders").LockContext(ctx)
				cancel()
				if err != nil {
					continue
				}
				others, token := holding.Add(1)-1, h.Token()
				if before := last.Swap(token); h.Err() == nil && (others > 0 || before >= token) {
					t.Errorf("token %d after %d, %d other holders", token, before, others)
				}
				uses.Add(1)
				holding.Add(-1)
				h.Unlock()
			}
		})
	}
	goOn := func(what string) {
		from := uses.Load()
		await(t, "locks are taken "+what, func() bool { return uses.Load() > from+20 })
	}
	goOn("at first")
	killed := e.Leader()
	killed.Kill()
	goOn("after the leader was killed")
	killed.Launch()
	frozen := e.Leader()
	frozen.Pause()
	defer frozen.Resume()
	goOn("while a leader stands still")
	frozen.Resume()
	goOn("in the end")
	close(stop)
	running.Wait()
}

// deadClient: the hold of a client that is gone ends under another leader too,
// and not before its lease.
func deadClient(t *testing.T, e *zookeepertest.Ensemble) {
	dead, s := opened(t, e.URL()), open(t, e.URL()+"?session_timeout=1500ms")
	req := request("dead", 1, false)
	req.TTL = 3 * time.Second
	hold(t, dead, req)
	granted := time.Now()
	dead.Close()
	leader := e.Leader()
	leader.Kill()
	defer leader.Launch()
	await(t, "the lock is granted", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		g, err := s.Acquire(ctx, request("dead", 2, false))
		return err == nil && g.Held
	})
	assert.Greater(t, time.Since(granted), req.TTL-100*time.Millisecond)
	release(t, s, request("dead", 2, false))
}
