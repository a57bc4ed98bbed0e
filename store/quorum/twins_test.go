package quorum_test

import (
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/dlock-go/dlock/store/quorum"
)

// TestFault103OneNodeTwice: two nodes that are one store would be a majority of three.
func TestFault103OneNodeTwice(t *testing.T) {
	for name, order := range map[string][]int{"first": {0, 0, 1}, "last": {1, 0, 0}, "apart": {0, 1, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := []*memory.Store{memory.New(), memory.New()}
				var stores []store.Store
				for _, i := range order {
					stores = append(stores, nodes[i].Peer())
				}
				q, err := quorum.New(stores...)
				if err != nil {
					t.Fatal(err)
				}
				defer q.Close()
				s := &site{t: t, nodes: nodes}
				c := &client{Store: q}
				for id := range 2 {
					for _, r := range []store.Request{request("a", id), waiting(request("b", id))} {
						s.refused(c, r, store.ErrRefused)
						q.Release(bg, refOf(r))
					}
				}
				synctest.Wait()
				for i := range nodes {
					want(t, "left", s.left(i), "")
				}
			})
		})
	}
}
