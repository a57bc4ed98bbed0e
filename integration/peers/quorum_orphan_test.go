package peers

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

const (
	// gone is how long after all wires are well again nothing may be left.
	gone = time.Second
	// asking is for how long a caller asks whose replies are lost.
	asking = time.Second
	// returning is for how long it is waited for after it has given up.
	returning = 5 * time.Second
)

// orphans is what the loss of a reply has left.
type orphans struct{ runs, kept, blocked, void int }

func (o *orphans) add(p orphans) {
	o.runs, o.kept, o.blocked, o.void = o.runs+p.runs, o.kept+p.kept, o.blocked+p.blocked, o.void+p.void
}

// orphan has the replies of all nodes to an acquire get lost, cut off with their
// connections (cutReply) or swallowed until the caller has given up (mute). It
// returns at how many nodes there is something left a second after the wires are
// well again, and whether the lock is free for a rival then. The leases are long.
// Who gets the lock all the same, as after a retry, unlocks it.
func (m *masters) orphan(t testing.TB, l majority, rival client, name string, reply state) orphans {
	t.Helper()
	all, addrs := newWires(t, m.addrs())
	c := m.open(t, l, addrs)
	defer c.Close()
	all.set(reply)
	ctx, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	caller := begin(ctx, c, name)
	void := false
	if reply == mute {
		for until := time.Now().Add(asking); m.left(t, l, name) < len(m.servers) && !void; time.Sleep(time.Millisecond) {
			void = time.Now().After(until)
		}
	}
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		if o := <-caller.done; o.hold != nil {
			o.hold.Unlock()
		}
	}()
	defer func() { <-returned }()
	select {
	case <-returned:
	case <-time.After(asking):
		giveUp()
		select {
		case <-returned:
		case <-time.After(returning):
		}
	}
	all.set(whole)
	time.Sleep(gone)
	if void {
		return orphans{void: 1}
	}
	o := orphans{runs: 1, kept: m.left(t, l, name)}
	ctx, leave := context.WithTimeout(context.Background(), gone)
	defer leave()
	if h, err := rival.Lock(ctx, name); err != nil {
		o.blocked = 1
	} else {
		h.Unlock()
	}
	return o
}

// orphaned runs orphan so many times at once for each way to lose a reply.
func (m *masters) orphaned(t *testing.T, l majority, rep, runs int) map[state]orphans {
	t.Helper()
	rival := m.open(t, l, m.addrs())
	defer rival.Close()
	all := map[state]orphans{}
	var mu sync.Mutex
	t.Run("orphans", func(t *testing.T) {
		var running sync.WaitGroup
		for _, reply := range []state{cutReply, mute} {
			for n := range runs {
				running.Go(func() {
					o := m.orphan(t, l, rival, fmt.Sprint(l.name, "-orphan-", rep, "-", reply, "-", n), reply)
					mu.Lock()
					defer mu.Unlock()
					sum := all[reply]
					sum.add(o)
					all[reply] = sum
				})
			}
		}
		running.Wait()
	})
	return all
}
