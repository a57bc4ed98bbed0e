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

func recordOf(s *Store, id string) *record {
	req := store.Request{Name: id, ID: id, Owner: id, TTL: time.Hour, WaitTTL: time.Hour}
	r, _ := s.records.track(req, s.keys.keysOf(req.Name, req.Owner, req.ID, req.Mode))
	return r
}

// held is what an answer said of a hold.
func held(revision int64, token uint64) *entry {
	return &entry{held: true, create: revision, mod: revision, token: token}
}

// An answer to a request that was sent before another answer has changed what is known does not change it: the request
// is repeated. One that says the same is noted.
func TestLateAnswerIsStale(t *testing.T) {
	inVitro(t, func(t *testing.T, s *Store) {
		r, older, newer := recordOf(s, "1"), &lease{id: 1}, &lease{id: 2}
		early := s.records.read(r)
		if !s.records.note(r, early, held(4, 40), newer, time.Hour) || s.records.note(r, early, held(4, 40), older, time.Hour) {
			t.Error("want the first to be noted, and the second not")
		}
		if k := s.records.read(r); k.lease != newer {
			t.Errorf("the hold is noted on lease %d", k.lease.id)
		}
		if !s.records.note(r, early, held(4, 40), newer, time.Hour) {
			t.Error("an answer that says the same is not noted")
		}
		if s.records.note(r, early, &entry{create: 2}, nil, time.Hour) {
			t.Error("an early answer of a place is noted")
		}
		if k := s.records.read(r); k.state != holding || k.token != 40 {
			t.Errorf("the hold is noted as %+v", k)
		}
		s.records.note(r, s.records.read(r), &entry{create: 5}, nil, time.Hour)
		if k := s.records.read(r); k.state != waiting || k.create != 5 {
			t.Errorf("the place is noted as %+v", k)
		}
	})
}

// After a restart without data revisions are lower than that of a place from before it.
func TestAnswerAfterALossOfData(t *testing.T) {
	inVitro(t, func(t *testing.T, s *Store) {
		r, l := recordOf(s, "1"), &lease{id: 1}
		s.records.note(r, s.records.read(r), &entry{create: 5000}, nil, time.Hour)
		s.records.note(r, s.records.read(r), held(20, 30), l, time.Hour)
		if k := s.records.read(r); k.lease != l || k.state != holding {
			t.Errorf("the hold is noted as %+v", k)
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

// Thousands of holds end during an outage. All of them are lost at once, and are deleted
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
			recordOf(s, fmt.Sprint(n))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for n := range 5000 {
			if _, k := s.records.find(fmt.Sprint(n)); !k.over {
				t.Fatalf("the hold %d is not over", n)
			}
		}
		time.Sleep(2 * sweepEvery)
		synctest.Wait()
		if n := unanswered.Load(); n == 0 || n > 20 {
			t.Errorf("%d requests at once", n)
		}
		out.Store(false)
		time.Sleep(2 * callTimeout)
		if n := s.Records(); n > 0 {
			t.Errorf("%d ids still have records", n)
		}
	})
}

// The server refuses to delete some keys for long. That does not delay the end of others.
func TestRefusedEndsDelayNobody(t *testing.T) {
	inVitro(t, func(t *testing.T, s *Store) {
		s.client.KV = reads{answer: func(_ context.Context, key string) error {
			if strings.Contains(key, "/refused") {
				return rpctypes.ErrPermissionDenied
			}
			return nil
		}}
		for n := range 1000 {
			recordOf(s, fmt.Sprint("refused", n))
		}
		time.Sleep(time.Minute)
		recordOf(s, "other")
		time.Sleep(time.Hour + 2*sweepEvery)
		synctest.Wait()
		if r, _ := s.records.find("other"); r != nil {
			t.Error("it still has a record")
		}
	})
}
