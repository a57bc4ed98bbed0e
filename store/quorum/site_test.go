package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/dlock-go/dlock/store/quorum"
)

const lease = 10 * time.Second

// bg is for calls in bubbles, to which the context of the test does not belong.
var bg = context.Background()

// site is nodes, in a bubble, and the ways of several clients to them.
type site struct {
	t     *testing.T
	opts  quorum.Options
	votes bool // the nodes vote in one round trip
	own   bool // they do, with tokens of their own only
	nodes []*memory.Store
	ways  []*client
}

// peer is node i for one client.
func (s *site) peer(i int) store.Store {
	switch {
	case s.votes:
		return faultstore.Voter(s.nodes[i].Peer())
	case s.own:
		return own{s.nodes[i].Peer()}
	}
	return s.nodes[i].Peer()
}

// client is one handle; faults meet what goes through its links.
type client struct {
	*quorum.Store
	links []*faultstore.Store
}

// inBubble runs f with a site of so many nodes, and closes what f has opened.
func inBubble(t *testing.T, nodes int, f func(s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &site{t: t}
		for range nodes {
			s.nodes = append(s.nodes, memory.New())
		}
		f(s)
		for _, c := range s.ways {
			c.Close()
		}
		time.Sleep(2 * time.Hour) // what faults keep back
	})
}

// client opens a handle.
func (s *site) client() *client {
	s.t.Helper()
	c := &client{}
	var stores []store.Store
	for i := range s.nodes {
		link := faultstore.New(s.peer(i))
		c.links = append(c.links, link)
		stores = append(stores, link)
	}
	inner, err := quorum.NewWithOptions(&s.opts, stores...)
	if err != nil {
		s.t.Fatal(err)
	}
	c.Store = inner
	s.ways = append(s.ways, c)
	return c
}

// restart has node i lose everything.
func (s *site) restart(i int) {
	s.nodes[i] = memory.New()
	for _, c := range s.ways {
		c.links[i].Swap(s.peer(i))
	}
}

// cut has the links of c to some nodes fail, until heal is called.
func (c *client) cut(f faultstore.Fault, nodes ...int) (heal func()) {
	return c.each(nodes, func(link *faultstore.Store) func() { return link.Outage(f) })
}

// fail has an operation fail at some nodes, until heal is called.
func (c *client) fail(op faultstore.Op, f faultstore.Fault, nodes ...int) (heal func()) {
	return c.each(nodes, func(link *faultstore.Store) func() { return link.On(op, faultstore.Every, f) })
}

func (c *client) each(nodes []int, begin func(*faultstore.Store) (heal func())) (heal func()) {
	var heals []func()
	for _, i := range nodes {
		heals = append(heals, begin(c.links[i]))
	}
	return func() {
		for _, heal := range heals {
			heal()
		}
	}
}

// request asks for the lock "n".
func request(owner string, id int) store.Request {
	return store.Request{Name: "n", Owner: owner, ID: fmt.Sprintf("%s%031x", owner[:1], id), TTL: lease, WaitTTL: lease / 2, Tokens: 1}
}

func refOf(r store.Request) store.Ref {
	return store.Ref{Name: r.Name, Owner: r.Owner, ID: r.ID, Mode: r.Mode, TTL: r.TTL}
}

// nothingLeft wants no node to have a holder or a waiter.
func (s *site) nothingLeft() {
	s.t.Helper()
	for i := range s.nodes {
		want(s.t, "left", s.left(i), "")
	}
}

func waiting(r store.Request) store.Request { r.Queue = true; return r }
func shared(r store.Request) store.Request  { r.Mode = store.Shared; return r }

// hold wants the request granted.
func (s *site) hold(c *client, r store.Request) store.Grant {
	s.t.Helper()
	g, err := c.Acquire(context.Background(), r)
	if err != nil || !g.Held {
		s.t.Fatalf("Acquire(%s): got %+v, %v, want it held", r.ID[:1], g, err)
	}
	return g
}

// refused wants an error that matches, or no error and a place if want is nil.
func (s *site) refused(c *client, r store.Request, want error) error {
	s.t.Helper()
	g, err := c.Acquire(context.Background(), r)
	if g.Held || !errors.Is(err, want) {
		s.t.Fatalf("Acquire(%s): got %+v, %v, want %v", r.ID[:1], g, err, want)
	}
	return err
}

func (s *site) release(c *client, r store.Request) {
	s.t.Helper()
	if err := c.Release(context.Background(), refOf(r)); err != nil {
		s.t.Fatalf("Release(%s): got %v", r.ID[:1], err)
	}
}

func (s *site) renew(c *client, r store.Request) error {
	return c.Renew(context.Background(), []store.Ref{refOf(r)})[0]
}

// holders are the first characters of the ids that hold at node i.
func (s *site) holders(i int) (ids string) {
	state, err := s.nodes[i].Inspect(context.Background(), "n")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, h := range state.Holders {
		ids += h.ID[:1]
	}
	return ids
}

// want compares, with a word on what.
func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
