package wakeups

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/internal/zookeepertest"
	"github.com/dlock-go/dlock/store"
)

// mortal is the lease of holders that are killed.
const mortal = 2 * time.Second

// A holder is killed with SIGKILL while somebody waits who does not ask by itself
// in time. It gets in when the lease of the holder is over.
func TestRedisHolderKilled(t *testing.T) {
	servers := []*redistest.Server{redistest.Start(t)}
	killHolders(t, urlOf(servers), newPulse(t, ping(servers)), time.Millisecond, 50*time.Millisecond)
}

// Each node ends the lease by itself, and tells who waits.
func TestQuorumHolderKilled(t *testing.T) {
	servers := startMasters(t)
	killHolders(t, urlOf(servers), newPulse(t, ping(servers)), time.Millisecond, 50*time.Millisecond)
}

// The server says in whole seconds what is left, never more than there is, looks
// every half, and then has to agree on the end with itself.
func TestEtcdHolderKilled(t *testing.T) {
	server := etcdtest.Start(t, 1)
	admin := server.Client(t)
	p := newPulse(t, func() error {
		_, err := admin.Get(context.Background(), "pulse")
		return err
	})
	killHolders(t, server.URL(), p, time.Millisecond, 2*time.Second)
}

// Who waits asks when the lease of the holder is over.
func TestPostgresHolderKilled(t *testing.T) {
	url := stores.NewDatabase(t, postgrestest.Start(t))
	killHolders(t, url, newPulse(t, beatOf(t, url)), time.Millisecond, 200*time.Millisecond)
}

// The handle that is asked knows the leader's clock to a round trip and some milliseconds, and takes the earliest
// moment that is possible. Half of the margin, by which the holder would have ended before, is far more.
func TestZookeeperHolderKilled(t *testing.T) {
	url := zookeepertest.Start(t, 1).URL()
	killHolders(t, url, newPulse(t, lookAt(t, url)), request.Margin(mortal)/2, 200*time.Millisecond)
}

// killHolders allows the next grant to be early and late by so much, beside what the store says is left of the lease.
func killHolders(t *testing.T, url string, p *locktest.Pulse, early, late time.Duration) {
	direct := stores.OpenFor(t, url)
	c := locktest.NewClient(t, stores.OpenFor(t, url), asleep)
	rounds := locktest.Prove(4, 40)
	worst := make(chan time.Duration, rounds)
	few := make(chan struct{}, 4) // a process that starts takes a lot
	t.Run("rounds", func(t *testing.T) {
		for round := range rounds {
			t.Run(fmt.Sprint(round), func(t *testing.T) {
				t.Parallel()
				few <- struct{}{}
				defer func() { <-few }()
				worst <- killHolder(t, url, fmt.Sprint("lock ", round), direct, c, p, early, late)
			})
		}
	})
	close(worst)
	var most time.Duration
	n := 0
	for after := range worst {
		most, n = max(most, after), n+1
	}
	t.Logf("%d holders killed: the next was granted at most %v after what the server said was left", n, most)
}

// killHolder returns how long after the end of the lease the next was granted.
func killHolder(
	t *testing.T, url, name string, direct store.Store, c *dlock.Client, p *locktest.Pulse, early, late time.Duration,
) time.Duration {
	holder := locktest.StartChild(t, "hold", url, name, mortal)
	token := holder.Says("held")
	waits := locktest.Begin(t, c, name)
	locktest.Queued(t, direct, name, 1)
	locktest.LearnClock(t, direct, name)
	killed := time.Now()
	holder.Kill()
	asked := time.Now()
	state, err := direct.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	answered := time.Now()
	h, at := waits.Granted(locktest.Patience)
	if len(state.Holders) == 0 || fmt.Sprint(state.Holders[0].Token) != token {
		// The lease was over before the store was asked, which takes a busy machine.
		if answered.Sub(killed) < mortal/2 {
			t.Errorf("the holder was killed %v ago, and the store has %+v", answered.Sub(killed), state.Holders)
		}
		locktest.Unlock(t, h)
		return killHolder(t, url, name, direct, c, p, early, late)
	}
	left := state.Holders[0].Remaining
	if by := asked.Add(left).Sub(at); by > early {
		t.Errorf("granted %v before the lease was over", by)
	}
	over := answered.Add(left)
	after := at.Sub(over)
	if after > late+locktest.Late && after-p.Stopped(over, at) > late+locktest.Late {
		t.Errorf("granted %v after the lease was over", after)
	}
	locktest.Unlock(t, h)
	return after
}
