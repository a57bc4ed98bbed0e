package peers

import (
	"context"
	"testing"
	"time"
)

const (
	// trying is for how long a caller waits for a lock that is free.
	trying = 500 * time.Millisecond
	// blocked is for how long a rival waits for a lock that nobody has.
	blocked = 4 * lease
)

// orphan has the reply to an acquire get lost, in one of two ways, and the
// caller give up, unless its library has got the lock all the same, as after a
// retry. From when the server answers again and the caller has gone, a rival
// waits: orphan returns for how long, blocked at most.
//
// A reply is cut (cutReply) when its connection is, after which the server
// answers at once, or it is swallowed (mute) until the caller has gone.
//
// A run is void if the request does not come in time, for instance because its
// library had to ask something else before, and that reply was swallowed.
func (s *site) orphan(t testing.TB, name string, reply state) (free time.Duration, void bool) {
	t.Helper()
	c, w := s.client(t)
	rival := s.near(t)
	// It has connected, and the server knows its scripts.
	for _, warm := range []client{c, rival} {
		if err := prepare(t, warm, "warm").Unlock(); err != nil {
			t.Fatal(err)
		}
	}

	w.set(reply)
	ctx, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	began := time.Now()
	caller := begin(ctx, c, name)
	if reply == mute {
		for !s.has(t, name) {
			if time.Since(began) > trying {
				giveUp()
				w.set(whole)
				if late := <-caller.done; late.hold != nil {
					late.hold.Unlock()
				}
				return 0, true
			}
			time.Sleep(time.Millisecond)
		}
	}
	returned := false
	var got outcome
	select {
	case got = <-caller.done:
		returned = true
	case <-time.After(trying - time.Since(began)):
		giveUp()
	}
	if got.hold != nil {
		got.hold.Unlock()
	}
	if !returned && reply == mute {
		// Some only return when they have heard something, or much later.
		select {
		case got = <-caller.done:
			returned = true
		case <-time.After(trying):
		}
	}
	w.set(whole)
	if !returned {
		go func() {
			if late := <-caller.done; late.hold != nil { // it does not look at its ctx
				late.hold.Unlock()
			}
		}()
	}

	healed := time.Now()
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	waits := begin(ctx, rival, name)
	select {
	case o := <-waits.done:
		if o.err != nil {
			t.Fatal(o.err)
		}
		free = o.at.Sub(healed)
		o.hold.Unlock()
	case <-time.After(blocked):
		free = blocked
		leave()
		c.Close() // what may free it
		<-waits.done
	}
	return free, false
}
