package model_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/model"
)

// counter is the simplest Raiser. left, if not negative, is how many tokens
// there still are.
type counter struct {
	last uint64
	left int
}

func (k *counter) Issue(n int) (uint64, int) {
	if k.left >= 0 {
		n = min(n, k.left)
		k.left -= n
	}
	if n == 0 {
		return 0, 0
	}
	k.last += uint64(n)
	return k.last - uint64(n) + 1, n
}
func (k *counter) Last() uint64                { return k.last }
func (k *counter) Reserve(first uint64, n int) { k.last = max(k.last, first+uint64(n)-1) }
func (k *counter) Take(first uint64, n int) bool {
	if first <= k.last {
		return false
	}
	k.Reserve(first, n)
	return true
}

// site is a record, its counter and a clock that a test moves.
type site struct {
	t      *testing.T
	record model.Record
	tokens counter
	now    time.Duration
	events []model.Event
}

func newSite(t *testing.T) *site { return &site{t: t, tokens: counter{left: -1}} }

func (s *site) call(f func(c *model.Call)) {
	c := model.Call{Now: s.now, Tokens: &s.tokens}
	f(&c)
	s.events = append(s.events, c.Events...)
}

// lease and place are how long holds and places last in these tests.
const lease, place = 10 * time.Second, 4 * time.Second

// request is one of an owner whose id is the owner's name and n.
func request(owner string, n int, mode store.Mode, queue bool) store.Request {
	return store.Request{
		Name: "name", Owner: owner, ID: fmt.Sprintf("%s-%d", owner, n), Mode: mode, Queue: queue,
		TTL: lease, WaitTTL: place, Tokens: 1, Label: "label of " + owner,
	}
}

func (s *site) acquire(req store.Request) (g store.Grant, err error) {
	s.call(func(c *model.Call) { g, err = s.record.Acquire(c, req, "handle of "+req.Owner) })
	return g, err
}

func (s *site) hold(req store.Request) store.Grant {
	s.t.Helper()
	g, err := s.acquire(req)
	if err != nil || !g.Held {
		s.t.Fatalf("Acquire(%s): got %+v, %v, want it held", req.ID, g, err)
	}
	return g
}

func (s *site) queue(req store.Request) store.Grant {
	s.t.Helper()
	g, err := s.acquire(req)
	if err != nil || g.Held {
		s.t.Fatalf("Acquire(%s): got %+v, %v, want it queued", req.ID, g, err)
	}
	return g
}

func (s *site) release(req store.Request, bury bool) (err error) {
	s.call(func(c *model.Call) {
		err = s.record.Release(c, store.Ref{Name: req.Name, Owner: req.Owner, ID: req.ID, TTL: req.TTL, Bury: bury})
	})
	return err
}

func (s *site) renew(req store.Request, d time.Duration) (err error) {
	s.call(func(c *model.Call) { err = s.record.Renew(c, store.Ref{ID: req.ID, TTL: d}) })
	return err
}

// wantEvents wants these events since the last look: pairs of an owner and a token.
func (s *site) wantEvents(want ...any) {
	s.t.Helper()
	var got []any
	for _, e := range s.events {
		got = append(got, e.ID, e.Token)
		if want := "handle of " + e.ID[:len(e.ID)-2]; e.Handle != want {
			s.t.Errorf("event of %s at %q, want %q", e.ID, e.Handle, want)
		}
	}
	s.events = nil
	if !reflect.DeepEqual(got, want) {
		s.t.Errorf("events %v, want %v", got, want)
	}
}

func (s *site) wantErr(got, want error) {
	s.t.Helper()
	if !errors.Is(got, want) {
		s.t.Errorf("got %v, want %v", got, want)
	}
}

func TestGrantQueueAndPromotion(t *testing.T) {
	s := newSite(t)
	a, b, r1, r2 := request("a", 1, store.Exclusive, false), request("b", 1, store.Exclusive, true),
		request("r1", 1, store.Shared, true), request("r2", 1, store.Shared, true)
	if g := s.hold(a); g.Token != 1 || g.TTL != lease || g.Holds != 1 {
		t.Errorf("got %+v, want token 1, the whole lease and one hold", g)
	}
	g, err := s.acquire(request("b", 2, store.Exclusive, false))
	s.wantErr(err, store.ErrHeld)
	if want := (store.Grant{Retry: lease, HeldBy: "label of a"}); g != want {
		t.Errorf("refused: got %+v, want %+v", g, want)
	}
	if g := s.queue(b); g != (store.Grant{Token: 1, Position: 1, Retry: lease, HeldBy: "label of a"}) {
		t.Errorf("queued: got %+v", g)
	}
	if g := s.queue(r1); g.Position != 2 || g.Retry != lease+2*time.Millisecond {
		t.Errorf("queued behind: got %+v", g)
	}
	s.queue(r2)
	s.now += time.Second
	s.wantErr(s.release(a, false), nil)
	s.wantEvents("b-1", uint64(2))
	if g := s.hold(b); g.Token != 2 || g.TTL != lease {
		t.Errorf("promoted and asked again: got %+v, want token 2 and the whole lease", g)
	}
	s.wantErr(s.release(b, false), nil)
	s.wantEvents("r1-1", uint64(3), "r2-1", uint64(4))
	if g := s.hold(request("r3", 1, store.Shared, false)); g.Token != 5 {
		t.Errorf("a third reader: got %+v", g)
	}
}

func TestQueuedAgain(t *testing.T) {
	s := newSite(t)
	first, second, third := request("a", 1, store.Exclusive, false), request("b", 1, store.Exclusive, true), request("c", 1, store.Exclusive, true)
	s.hold(first)
	for range 2 {
		if g := s.queue(second); g.Position != 1 || g.Retry != lease {
			t.Errorf("the head: got position %d, retry %v, want 1 and %v", g.Position, g.Retry, lease)
		}
		if g, want := s.queue(third), lease+2*time.Millisecond; g.Position != 2 || g.Retry != want {
			t.Errorf("behind it: got position %d, retry %v, want 2 and %v", g.Position, g.Retry, want)
		}
	}
	s.wantErr(s.release(second, false), nil)
	if g := s.queue(third); g.Position != 1 {
		t.Errorf("after the head has left: got position %d, want 1", g.Position)
	}
}

func TestRenew(t *testing.T) {
	s := newSite(t)
	held, waiting := request("a", 1, store.Exclusive, false), request("b", 1, store.Exclusive, true)
	s.hold(held)
	s.queue(waiting)
	s.wantErr(s.renew(held, 2*lease), nil)
	s.wantErr(s.renew(waiting, lease), store.ErrLost)
	s.now = 2*lease - 1
	s.wantErr(s.renew(held, lease), nil)
	s.now = 3*lease - 1
	s.wantErr(s.renew(held, lease), store.ErrLost)
}

func TestReentryAndUpgrade(t *testing.T) {
	s := newSite(t)
	first := s.hold(request("a", 1, store.Shared, false))
	s.hold(request("b", 1, store.Shared, false))
	s.queue(request("w", 1, store.Exclusive, true))
	if g := s.hold(request("a", 2, store.Shared, false)); g.Token != first.Token || g.Holds != 2 {
		t.Errorf("re-entry: got %+v, want token %d and two holds", g, first.Token)
	}
	g, err := s.acquire(request("a", 3, store.Exclusive, true))
	s.wantErr(err, store.ErrUpgrade)
	if g.HeldBy != "label of b" {
		t.Errorf("upgrade: got %+v, want it held by b", g)
	}
	s.wantErr(s.release(request("b", 1, store.Shared, false), false), nil)
	if g := s.hold(request("a", 3, store.Exclusive, true)); g.Token != 3 || g.Holds != 3 {
		t.Errorf("upgrade: got %+v, want token 3 and three holds", g)
	}
	several := request("a", 4, store.Shared, false)
	several.Tokens = 5
	if g := s.hold(several); g.Token != 3 || g.Short != 4 {
		t.Errorf("re-entry under a writer: got %+v, want token 3 and none behind it", g)
	}
}

// TestSiblings: what an owner waits for is granted with its owner.
func TestSiblings(t *testing.T) {
	s := newSite(t)
	s.hold(request("a", 1, store.Exclusive, false))
	s.queue(request("b", 1, store.Exclusive, true))
	s.queue(request("c", 1, store.Exclusive, true))
	s.queue(request("b", 2, store.Shared, true))
	s.release(request("a", 1, store.Exclusive, false), false)
	s.wantEvents("b-1", uint64(2), "b-2", uint64(2))
	// Both have WaitTTL to show that their client is there.
	s.now += place
	s.wantErr(s.renew(request("b", 2, store.Shared, true), lease), store.ErrLost)
	s.wantEvents()
}

func TestExpiryPromotes(t *testing.T) {
	s := newSite(t)
	s.hold(request("a", 1, store.Exclusive, false))
	s.now += lease - place
	s.queue(request("b", 1, store.Exclusive, true))
	s.queue(request("c", 1, store.Exclusive, true))
	s.now += place - 1
	s.queue(request("c", 1, store.Exclusive, true)) // b does not ask again
	s.wantEvents()
	s.now++
	s.wantErr(s.renew(request("a", 1, store.Exclusive, false), lease), store.ErrLost)
	s.wantEvents("c-1", uint64(2))
	if !s.record.InUse(s.now) || s.record.Expires() != s.now+place {
		t.Errorf("in use %v, expires %v, want true and %v", s.record.InUse(s.now), s.record.Expires(), s.now+place)
	}
}

func TestBurial(t *testing.T) {
	s := newSite(t)
	a := request("a", 1, store.Exclusive, false)
	s.wantErr(s.release(a, true), store.ErrLost)
	s.now += lease - 1
	_, err := s.acquire(a)
	s.wantErr(err, store.ErrLost)
	s.call(func(c *model.Call) { // a shorter time shortens nothing
		s.record.Release(c, store.Ref{ID: a.ID, Bury: true, TTL: lease})
		s.record.Release(c, store.Ref{ID: a.ID, Bury: true, TTL: 1})
	})
	s.now += lease - 1
	_, err = s.acquire(a)
	s.wantErr(err, store.ErrLost)
	s.now++
	s.hold(a)
	s.release(a, false)
	if !s.record.Empty() {
		t.Errorf("something is left: %+v", s.record)
	}
}

// Each buried id has a time of its own.
func TestBurialOfSeveral(t *testing.T) {
	s := newSite(t)
	long, short := request("a", 1, store.Exclusive, false), request("b", 1, store.Exclusive, false)
	short.TTL = place
	s.wantErr(s.release(long, true), store.ErrLost)
	s.wantErr(s.release(short, true), store.ErrLost)
	_, err := s.acquire(short)
	s.wantErr(err, store.ErrLost)
	s.now = place
	s.hold(short)
	s.wantErr(s.release(short, false), nil)
	_, err = s.acquire(long)
	s.wantErr(err, store.ErrLost)
}

func TestBreak(t *testing.T) {
	s := newSite(t)
	s.hold(request("a", 1, store.Shared, false))
	s.hold(request("b", 1, store.Shared, false))
	s.queue(request("w", 1, store.Exclusive, true))
	s.call(func(c *model.Call) {
		if n := s.record.Break(c); n != 2 {
			t.Errorf("broke %d holds, want 2", n)
		}
	})
	s.wantEvents("w-1", uint64(3))
}

func TestRaise(t *testing.T) {
	s := newSite(t)
	raise := func(id string, token uint64, tokens int) (raised uint64, err error) {
		s.call(func(c *model.Call) { raised, err = s.record.Raise(c, &s.tokens, id, token, tokens) })
		return raised, err
	}
	_, err := raise("a-1", 5, 1)
	s.wantErr(err, store.ErrLost)
	s.hold(request("a", 1, store.Exclusive, false))
	for _, test := range []struct{ token, want, last uint64 }{{10, 10, 11}, {7, 10, 11}, {11, 11, 12}} {
		if got, err := raise("a-1", test.token, 2); got != test.want || err != nil || s.tokens.last != test.last {
			t.Errorf("raised to %d: got %d, %v, last %d, want %d, last %d", test.token, got, err, s.tokens.last, test.want, test.last)
		}
	}
	s.release(request("a", 1, store.Exclusive, false), false)
	s.hold(request("r", 1, store.Shared, false)) // 13
	s.hold(request("q", 1, store.Shared, false)) // 14
	if got, err := raise("r-1", 14, 2); got != 15 || err != nil {
		t.Errorf("a reader raised to another one's token: got %d, %v, want 15", got, err)
	}
	if got, err := raise("q-1", 20, 2); got != 20 || err != nil || s.tokens.last != 21 {
		t.Errorf("a reader raised: got %d, %v, last %d", got, err, s.tokens.last)
	}
}

// TestFewTokens: a counter that has fewer tokens than asked for, or none.
func TestFewTokens(t *testing.T) {
	s := newSite(t)
	s.tokens.left = 3
	a := request("a", 1, store.Exclusive, false)
	a.Tokens = 5
	if g := s.hold(a); g.Short != 2 {
		t.Errorf("got %+v, want two tokens short", g)
	}
	if g := s.hold(a); g.Short != 2 {
		t.Errorf("asked again: got %+v, want the same answer", g)
	}
	s.release(a, false)
	b := request("b", 1, store.Exclusive, true)
	if g := s.queue(b); g.Position != 1 || g.Retry <= 0 {
		t.Errorf("no tokens: got %+v, want a place and a positive Retry", g)
	}
	s.tokens.left = 1
	s.call(func(c *model.Call) { s.record.Inspect(c, "name") })
	s.wantEvents("b-1", uint64(4))
}

// TestUpgradeWithoutTokens: an upgrade that lacks only a token is not refused as one that
// another owner's hold is in the way of.
func TestUpgradeWithoutTokens(t *testing.T) {
	s := newSite(t)
	s.hold(request("a", 1, store.Shared, false))
	s.tokens.left = 0
	upgrade := request("a", 2, store.Exclusive, false)
	_, err := s.acquire(upgrade)
	s.wantErr(err, store.ErrHeld)
	s.tokens.left = 1
	s.hold(upgrade)
}

func TestInspect(t *testing.T) {
	s := newSite(t)
	req := request("owner-a", 1, store.Exclusive, false)
	s.hold(req)
	s.queue(request("owner-b", 1, store.Shared, true))
	s.now += time.Second
	var got store.State
	s.call(func(c *model.Call) { got = s.record.Inspect(c, "name") })
	want := store.State{Name: "name", Token: 1,
		Holders: []store.Entry{{ID: "owner-", Owner: "owner-", Token: 1, Remaining: lease - time.Second, Label: "label of owner-a"}},
		Queue:   []store.Entry{{ID: "owner-", Owner: "owner-", Mode: store.Shared, Remaining: place - time.Second, Label: "label of owner-b"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestReset: a record that is used again shows nothing of its last name, and a
// large one is not worth keeping.
func TestReset(t *testing.T) {
	s := newSite(t)
	s.hold(request("a", 1, store.Exclusive, false))
	s.queue(request("b", 1, store.Exclusive, true))
	s.release(request("c", 1, store.Exclusive, true), true)
	if !s.record.Small() {
		t.Error("a record of three entries is not small")
	}
	s.record.Reset()
	if !s.record.Empty() {
		t.Errorf("not empty: %+v", s.record)
	}
	for i := range 100 {
		s.hold(request("r", i, store.Shared, false))
	}
	if s.record.Small() {
		t.Error("a record of a hundred holds is small")
	}
}
