package quorum_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/dlock-go/dlock/store/quorum"
)

// scant is a node that reserves one token, however many it is asked for.
type scant struct{ *memory.Store }

func (n scant) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	asked := req.Tokens
	req.Tokens = 1
	g, err := n.Store.Acquire(ctx, req)
	g.Short = asked - 1
	return g, err
}

// TestScantNodes: what is agreed on is reserved at the nodes as a whole, also at one
// that has to be told of the hold anew and comes upon just that token by itself.
func TestScantNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		advance := func(n *memory.Store, tokens int) {
			r := request("b", 2)
			r.Name, r.Tokens = "elsewhere", tokens
			if _, err := n.Acquire(bg, r); err != nil {
				t.Fatal(err)
			}
		}
		var nodes []*memory.Store
		var links []*faultstore.Store
		var stores []store.Store
		for i := range 3 {
			n := memory.New()
			advance(n, 10*(i+1))
			link := faultstore.New(scant{n})
			nodes, links, stores = append(nodes, n), append(links, link), append(stores, link)
		}
		s, err := quorum.New(stores...)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		r := request("a", 1)
		r.Tokens = 33
		g, err := s.Acquire(bg, r)
		if err != nil || !g.Held || g.Short != 0 {
			t.Fatalf("got %+v, %v", g, err)
		}
		reserved := func(what string, n *memory.Store) {
			t.Helper()
			synctest.Wait()
			if state, _ := n.Inspect(bg, r.Name); state.Token < g.Token+32 {
				t.Errorf("%s has issued up to %d, and reserved is up to %d", what, state.Token, g.Token+32)
			}
		}
		for _, n := range nodes {
			reserved("a node", n)
		}

		fresh := memory.New()
		advance(fresh, int(g.Token)-1)
		links[1].Swap(scant{fresh})
		if errs := s.Renew(bg, []store.Ref{refOf(r)}); errs[0] != nil {
			t.Fatal(errs[0])
		}
		reserved("a node that came back empty", fresh)
		if err := s.Release(bg, refOf(r)); err != nil {
			t.Error(err)
		}
	})
}
