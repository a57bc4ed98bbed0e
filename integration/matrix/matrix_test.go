package matrix

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
)

func TestFault02And03And04And06And09ReplyLost(t *testing.T) {
	for _, s := range []struct {
		name  string
		start func(t *testing.T) server
	}{
		{"redis", startRedis}, {"etcd", startEtcd}, {"postgres", startPostgres}, {"zookeeper", startZookeeper},
		{"quorum, a node", startQuorum(1)}, {"quorum, all nodes", startQuorum(3)},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			on := newSite(t, s.start(t))
			for _, operation := range []struct {
				name string
				run  func(*cell)
			}{
				{"acquire", (*cell).acquire}, {"re-entry", (*cell).reenter}, {"shared", (*cell).share},
				{"renew", (*cell).renew}, {"release", (*cell).release},
			} {
				for _, how := range []fault{cut, mute, late, duplicate} {
					for _, end := range []string{"retry", "give up"} {
						name := fmt.Sprint(operation.name, "/", how, "/", end)
						t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
							t.Parallel()
							c := newCell(t, on, name, how, end == "give up")
							operation.run(c)
							c.free()
						})
					}
				}
			}
		})
	}
}

func (c *cell) acquire() {
	h := c.take(context.Background(), c.far.Mutex(c.name).LockContext)
	if h == nil {
		c.well(0)
		return
	}
	c.well(1)
	c.holds(h, 1)
	c.busy()
	locktest.Unlock(c.t, h)
}

// reenter: an owner who holds already takes the lock again. In one client that
// makes no call of the store, so it cannot lose a reply: it is the owner's call
// in another process that does, and counts at the store. Over a quorum, owners belong to
// one client, and it is the owner's upgrade, which has a token of its own.
func (c *cell) reenter() {
	ctx := dlock.WithOwner(context.Background(), dlock.NewOwner())
	first, second := c.near.Mutex(c.name).LockContext, c.far.Mutex(c.name).LockContext
	if c.apart {
		m := c.far.RWMutex(c.name)
		first, second, c.outer = m.RLockContext, m.LockContext, 1
	}
	outer, err := first(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	inner := c.take(ctx, second)
	if inner == nil {
		c.well(1)
	} else {
		c.well(2)
		c.holds(inner, 2)
		if !c.apart && inner.Token() != outer.Token() || c.apart && inner.Token() <= outer.Token() {
			c.t.Errorf("the tokens of one owner are %d and %d", outer.Token(), inner.Token())
		}
		locktest.Unlock(c.t, inner)
	}
	c.holds(outer, 1)
	if n := outer.Count(); n != 1 {
		c.t.Errorf("its count is %d, want 1", n)
	}
	c.busy()
	locktest.Unlock(c.t, outer)
}

// share: a reader joins another.
func (c *cell) share() {
	first, err := c.near.RWMutex(c.name).RLockContext(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	second := c.take(context.Background(), c.far.RWMutex(c.name).RLockContext)
	if second == nil {
		c.well(1)
	} else {
		c.well(2)
		c.holds(second, 2)
		c.busy()
		locktest.Unlock(c.t, second)
	}
	c.holds(first, 1)
	c.busy()
	locktest.Unlock(c.t, first)
}

// renew: the holder goes on, for longer than the lease, or gives up, which is to
// unlock while the reply is outstanding.
func (c *cell) renew() {
	bites := make(chan struct{})
	c.wire.lose(renew, c.how, false, func() { close(bites) })
	h := locktest.Lock(c.t, c.far, c.name)
	taken := time.Now()
	select {
	case <-bites:
	case <-time.After(locktest.Patience):
		c.t.Fatal("nothing is renewed")
	}
	if c.giveUp {
		c.released(h.Unlock())
		c.well(0)
		return
	}
	c.well(1)
	<-time.After(time.Until(taken.Add(options.TTL + options.TTL/6)))
	c.holds(h, 1)
	if n := h.Count(); n != 1 {
		c.t.Errorf("its count is %d, want 1", n)
	}
	c.busy()
	locktest.Unlock(c.t, h)
}

// release: the first reply is lost, or all are until Unlock gives up. Its caller
// cannot leave sooner, for it takes no context. In any case the next one in the
// queue gets the lock, once.
func (c *cell) release() {
	h := locktest.Lock(c.t, c.far, c.name)
	waits := locktest.Begin(c.t, c.near, c.name)
	locktest.Queued(c.t, c.direct, c.name, 1)
	c.twiceReleased = c.how == duplicate
	c.wire.lose(release, c.how, c.giveUp, func() {})
	c.released(h.Unlock())
	c.wire.stop()
	next, _ := waits.Granted(options.StoreTimeout + locktest.Soon)
	if next.Token() <= h.Token() {
		c.t.Errorf("token %d was followed by %d", h.Token(), next.Token())
	}
	c.well(1)
	c.holds(next, 1)
	c.busy()
	locktest.Unlock(c.t, next)
}
