package matrix

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/quorum"
)

// quorumServer is three servers, of which so many lose replies.
type quorumServer struct {
	masters []redisServer
	faulty  int
}

func startQuorum(faulty int) func(t *testing.T) server {
	return func(t *testing.T) server {
		s := &quorumServer{faulty: faulty}
		for range 3 {
			s.masters = append(s.masters, startRedis(t).(redisServer))
		}
		return s
	}
}

// openQuorum: none of the servers restarts, so there is no need to wait until they
// are as old as the longest lease.
func openQuorum(t *testing.T, urls []string) *quorum.Store {
	t.Helper()
	var nodes []store.Store
	for _, url := range urls {
		nodes = append(nodes, openRedis(t, url))
	}
	q, err := quorum.NewWithOptions(&quorum.Options{Durable: true}, nodes...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	return q
}

func (s *quorumServer) near(t *testing.T) store.Store {
	var urls []string
	for _, m := range s.masters {
		urls = append(urls, m.URL())
	}
	return everyNode{openQuorum(t, urls)}
}

func (s *quorumServer) far(t *testing.T) (store.Store, wire) {
	var urls []string
	var all quorumWire
	for i, m := range s.masters {
		proxy, w := m.wire(t)
		urls = append(urls, proxy.URL())
		if i < s.faulty {
			all = append(all, w)
		}
	}
	return openQuorum(t, urls), all
}

// quorumWire is the wires of those that lose replies, each of them one.
type quorumWire []*plan

// asked is longer than a call of a node may take, so all nodes of a call are asked by then.
const asked = 2 * time.Second

func (all quorumWire) lose(what request, how fault, every bool, bites func()) {
	// A caller who gives up may be gone before all nodes were asked: then nothing bites there.
	first := sync.OnceFunc(func() {
		time.AfterFunc(asked, func() {
			for _, w := range all {
				w.spare()
			}
		})
		bites()
	})
	for _, w := range all {
		w.lose(what, how, every, first)
	}
}

func (all quorumWire) stop() {
	for _, w := range all {
		w.stop()
	}
}

func (all quorumWire) healed() <-chan struct{} {
	good := make(chan struct{})
	var each []<-chan struct{}
	for _, w := range all {
		each = append(each, w.healed())
	}
	go func() {
		defer close(good)
		for _, c := range each {
			<-c
		}
	}()
	return good
}

// follows is for how long a node may be behind the others while all is well: the
// quorum goes on as soon as a majority has done its part.
const follows = 100 * time.Millisecond

// everyNode shows what any node has: an orphan at one of them is one, though
// nobody minds it. What a majority has not has no token.
type everyNode struct{ *quorum.Store }

func (s everyNode) Inspect(ctx context.Context, name string) (store.State, error) {
	for deadline := time.Now().Add(follows); ; time.Sleep(time.Millisecond) {
		state, err := s.Store.Inspect(ctx, name)
		if err != nil {
			return state, err
		}
		views, err := s.Views(ctx, name)
		if err != nil {
			return state, err
		}
		agreed := len(state.Holders) + len(state.Queue)
		for _, v := range views {
			if v.Err != nil {
				return state, v.Err
			}
			state.Holders = withOthers(state.Holders, v.State.Holders)
			state.Queue = withOthers(state.Queue, v.State.Queue)
		}
		if len(state.Holders)+len(state.Queue) == agreed || time.Now().After(deadline) {
			return state, nil
		}
	}
}

func withOthers(all, more []store.Entry) []store.Entry {
	for _, e := range more {
		if !slices.ContainsFunc(all, func(x store.Entry) bool { return x.ID == e.ID && x.Owner == e.Owner }) {
			e.Token = 0
			all = append(all, e)
		}
	}
	return all
}
