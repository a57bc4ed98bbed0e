package model_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/model"
)

// A request that the holders would allow stays behind the waiters.
func TestReaderStaysBehindWaitingWriter(t *testing.T) {
	s := newSite(t)
	s.hold(request("a", 1, store.Shared, false))
	s.queue(request("w", 1, store.Exclusive, true))
	_, err := s.acquire(request("r", 1, store.Shared, false))
	s.wantErr(err, store.ErrHeld)
	if g := s.queue(request("r", 2, store.Shared, true)); g.Position != 2 {
		t.Errorf("got %+v, want the place behind the writer", g)
	}
}

// An upgrade that waits for a token is granted when it asks again, also behind the head of the
// queue. It leaves its place, and its owner's other waiters are granted with it.
func TestQueuedUpgradeAsksAgain(t *testing.T) {
	s := newSite(t)
	s.hold(request("a", 1, store.Shared, false))
	s.tokens.left = 0
	s.queue(request("head", 1, store.Exclusive, true))
	upgrade, another := request("a", 2, store.Exclusive, true), request("a", 3, store.Exclusive, true)
	s.queue(upgrade)
	s.queue(another)
	s.tokens.left = 1
	if g := s.hold(upgrade); g.Token != 2 || g.TTL != lease {
		t.Errorf("got %+v, want a token of its own and the whole lease", g)
	}
	s.wantEvents("a-3", uint64(2))
	s.call(func(c *model.Call) {
		if state := s.record.Inspect(c, "name"); len(state.Holders) != 3 || len(state.Queue) != 1 {
			t.Errorf("got %+v, want three holds and the head of the queue", state)
		}
	})
}

// A waiter whose owner was granted something else in the meantime, beside another owner,
// is an upgrade that cannot be granted: it leaves the queue, and those behind it advance.
func TestWaiterThatBecameAnUpgradeLeaves(t *testing.T) {
	s := newSite(t)
	s.hold(request("a", 1, store.Exclusive, false))
	s.queue(request("r", 1, store.Shared, true))
	s.queue(request("o", 1, store.Shared, true))
	s.queue(request("o", 2, store.Exclusive, true))
	s.queue(request("q", 1, store.Shared, true))
	s.release(request("a", 1, store.Exclusive, false), false)
	s.wantEvents("r-1", uint64(2), "o-1", uint64(3))
	s.now += time.Second
	g, err := s.acquire(request("o", 2, store.Exclusive, true))
	s.wantErr(err, store.ErrUpgrade)
	if want := (store.Grant{HeldBy: "label of r"}); g.HeldBy != want.HeldBy || g.Position != 0 {
		t.Errorf("got %+v, want no place, held by the other reader", g)
	}
	s.wantEvents("q-1", uint64(4))
}

// What has expired by then is no hold for any call.
func TestExpiredHoldIsGone(t *testing.T) {
	a := request("a", 1, store.Exclusive, false)
	expired := func() *site {
		s := newSite(t)
		s.hold(a)
		s.queue(request("b", 1, store.Exclusive, true))
		s.now += place - 1
		s.queue(request("b", 1, store.Exclusive, true)) // asks again, so it is alive below
		s.now = lease - 1
		s.queue(request("b", 1, store.Exclusive, true))
		s.now = lease
		return s
	}
	t.Run("released", func(t *testing.T) {
		s := expired()
		s.wantErr(s.release(a, false), store.ErrLost)
		s.wantEvents("b-1", uint64(2))
	})
	t.Run("broken", func(t *testing.T) {
		s := newSite(t)
		s.hold(a)
		s.now = lease
		s.call(func(c *model.Call) {
			if n := s.record.Break(c); n != 0 {
				t.Errorf("broke %d holds, want none", n)
			}
		})
	})
	t.Run("raised", func(t *testing.T) {
		s := expired()
		s.call(func(c *model.Call) {
			token, err := s.record.Raise(c, &s.tokens, a.ID, 9, 1)
			s.wantErr(err, store.ErrLost)
			if token != 0 || s.tokens.last >= 9 {
				t.Errorf("raised to %d, last token %d", token, s.tokens.last)
			}
		})
	})
	t.Run("settled", func(t *testing.T) {
		s := expired()
		s.call(func(c *model.Call) { s.record.Settle(c) })
		s.wantEvents("b-1", uint64(2))
		if _, _, ok := s.record.Hold(a.ID); ok {
			t.Error("the expired hold is still there")
		}
		if token, short, ok := s.record.Hold("b-1"); token != 2 || short != 0 || !ok {
			t.Errorf("the promoted hold: got %d, %d, %v", token, short, ok)
		}
	})
}

// A burial that ends takes no other with it.
func TestBurialEndsAlone(t *testing.T) {
	s := newSite(t)
	short, long := request("a", 1, store.Exclusive, false), request("b", 1, store.Exclusive, false)
	short.TTL = place
	s.release(short, true)
	s.release(long, true)
	s.now = place
	s.hold(short)
	_, err := s.acquire(long)
	s.wantErr(err, store.ErrLost)
}

// A reader that is raised to the token it has keeps it.
func TestRaiseToOwnToken(t *testing.T) {
	s := newSite(t)
	s.hold(request("r", 1, store.Shared, false))
	s.call(func(c *model.Call) {
		if token, err := s.record.Raise(c, &s.tokens, "r-1", 1, 1); token != 1 || err != nil || s.tokens.last != 1 {
			t.Errorf("got %d, %v, last %d, want token 1", token, err, s.tokens.last)
		}
	})
}
