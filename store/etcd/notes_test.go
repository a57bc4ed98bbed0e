package etcd

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// inVitro runs f in a bubble with a handle that has no server, but for a lease.
func inVitro(t *testing.T, f func(t *testing.T, s *Store)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := clientv3.NewCtxClient(t.Context())
		client.Lease = oneLease{}
		s, err := New(client, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		f(t, s)
	})
}

type oneLease struct{ clientv3.Lease }

func (oneLease) Grant(_ context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	return &clientv3.LeaseGrantResponse{ID: 1, TTL: ttl}, nil
}

func (oneLease) Revoke(context.Context, clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	return &clientv3.LeaseRevokeResponse{}, nil
}

func note(s *Store, id string) *claim {
	req := store.Request{Name: "a", ID: id, Owner: id, TTL: time.Hour, WaitTTL: time.Hour}
	c, _ := s.claims.track(req, "a/", "a/"+id)
	return c
}

// What comes late of a hold that is a place by then makes no hold of that place.
func TestLateNewsOfAHold(t *testing.T) {
	inVitro(t, func(t *testing.T, s *Store) {
		c := note(s, "1")
		s.claims.held(c, &lease{}, 2, 20, time.Hour)
		s.claims.waits(c, 4)
		if l, _, _, _ := s.claims.known(c); l != nil {
			t.Error("the place is noted on the lease of the hold")
		}
		s.claims.held(c, nil, 3, 30, time.Hour)
		if e := s.claims.entry(c); e != nil {
			t.Errorf("a hold at %d", e.mod)
		}
		s.claims.held(c, nil, 5, 50, time.Hour)
		if e := s.claims.entry(c); e == nil || e.mod != 5 || e.token != 50 {
			t.Errorf("got %+v, want the hold with token 50", e)
		}
	})
}

// An answer that is older than what is known of a hold does not change its lease.
func TestLateAnswerLeavesTheLease(t *testing.T) {
	inVitro(t, func(t *testing.T, s *Store) {
		c, older, newer := note(s, "1"), &lease{id: 1}, &lease{id: 2}
		s.claims.held(c, newer, 4, 30, time.Hour)
		s.claims.held(c, older, 3, 30, time.Hour)
		if l, _, _, _ := s.claims.known(c); l != newer {
			t.Errorf("the hold is noted on lease %d", l.id)
		}
	})
}

// After a restart without data revisions are lower than that of a place from before it.
func TestLeaseAfterALossOfData(t *testing.T) {
	inVitro(t, func(t *testing.T, s *Store) {
		c, l := note(s, "1"), &lease{id: 1}
		s.claims.waits(c, 5000)
		s.claims.waits(c, 12)
		s.claims.held(c, l, 20, 30, time.Hour)
		if noted, _, _, _ := s.claims.known(c); noted != l {
			t.Errorf("the hold is noted on lease %v", noted)
		}
	})
}

// One long hold does not keep note of those that came and went behind it.
func TestForgottenIsNotLookedAt(t *testing.T) {
	inVitro(t, func(t *testing.T, s *Store) {
		note(s, "first")
		for n := range 1000 {
			time.Sleep(time.Millisecond)
			s.claims.forget(note(s, fmt.Sprint(n)))
		}
		if ids, looks := s.Claims(); ids != 1 || looks > 100 {
			t.Errorf("%d looks at %d ids are to come", looks, ids)
		}
	})
}

// reads is a server that answers reads.
type reads struct {
	clientv3.KV
	answer func(ctx context.Context, key string) error
}

func (r reads) Get(ctx context.Context, key string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return &clientv3.GetResponse{}, r.answer(ctx, key)
}

// Thousands of holds end amid an outage. All of them are lost at once, and are deleted
// by few when the server answers again.
func TestManyEndAtOnce(t *testing.T) {
	inVitro(t, func(t *testing.T, s *Store) {
		var out atomic.Bool
		var unanswered atomic.Int32
		s.client.KV = reads{answer: func(ctx context.Context, _ string) error {
			if out.Load() {
				unanswered.Add(1)
				defer unanswered.Add(-1)
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}
		out.Store(true)
		for n := range 5000 {
			note(s, fmt.Sprint(n))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for n := range 5000 {
			if _, _, _, over := s.claims.known(s.claims.find(fmt.Sprint(n))); !over {
				t.Fatalf("the hold %d is not over", n)
			}
		}
		if n := unanswered.Load(); n == 0 || n > 20 {
			t.Errorf("%d requests at once", n)
		}
		out.Store(false)
		time.Sleep(2 * callTimeout)
		if ids, _ := s.Claims(); ids > 0 {
			t.Errorf("%d ids are still noted", ids)
		}
	})
}

// The server refuses to delete some keys for long. That does not delay the end of others.
func TestRefusedEndsDelayNobody(t *testing.T) {
	inVitro(t, func(t *testing.T, s *Store) {
		s.client.KV = reads{answer: func(_ context.Context, key string) error {
			if strings.HasPrefix(key, "a/refused") {
				return rpctypes.ErrPermissionDenied
			}
			return nil
		}}
		for n := range 1000 {
			note(s, fmt.Sprint("refused", n))
		}
		time.Sleep(time.Minute)
		note(s, "other")
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.claims.find("other") != nil {
			t.Error("it is still noted")
		}
	})
}

// A release that closing has overtaken does not wait for a task that is not begun.
func TestFault72PlacesKeptAfterClose(t *testing.T) {
	inVitro(t, func(t *testing.T, s *Store) {
		s.Close()
		select {
		case <-s.keepPlaces(context.Background(), nil):
		case <-time.After(time.Minute):
			t.Error("there is no answer")
		}
	})
}
