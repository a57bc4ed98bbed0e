package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
)

// lessor is a server of leases that counts what it is asked.
type lessor struct {
	oneLease
	looks   int
	revokes func()
}

func (l *lessor) TimeToLive(context.Context, clientv3.LeaseID, ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	l.looks++
	return &clientv3.LeaseTimeToLiveResponse{TTL: -1}, nil
}

func (l *lessor) Revoke(context.Context, clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	if l.revokes != nil {
		l.revokes()
	}
	return &clientv3.LeaseRevokeResponse{}, nil
}

// A lease that nothing hangs on is over. The handle forgets it, though no other one of its kind is wanted.
func TestUnusedLeasesAreForgotten(t *testing.T) {
	inVitro(t, func(t *testing.T, s *Store) {
		server := &lessor{}
		s.client.Lease = server
		l, err := s.leases.take(t.Context(), holdsFor(5*time.Second), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		s.leases.count(l, -1)
		time.Sleep(time.Minute)
		synctest.Wait()
		looks := server.looks
		time.Sleep(time.Minute)
		synctest.Wait()
		if server.looks > looks || len(s.leases.list()) > 0 {
			t.Errorf("%d leases, of which the server was asked %d times", len(s.leases.list()), server.looks-looks)
		}
	})
}

// Close revokes a lease that has no keys while a call is under way, which then gets another lease.
func TestCallDuringCloseKeepsItsLease(t *testing.T) {
	inVitro(t, func(t *testing.T, s *Store) {
		kind := holdsFor(time.Minute)
		server := &lessor{revokes: func() {
			if s.leases.room(kind) != nil {
				t.Error("a lease that is being revoked has room for a key")
			}
		}}
		l, err := s.leases.take(t.Context(), kind, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		s.leases.count(l, -1)
		s.client.Lease = server
		s.leases.revokeUnused()
	})
}

// The most readers that are granted together fit into a call beside the most other operations.
func TestReadersTravelTogether(t *testing.T) {
	t.Parallel()
	s, err := Open(etcdtest.Start(t, 1).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	v := &view{dir: s.keys.dir("a")}
	for n := range 2 * maxReaders {
		req := store.Request{Name: "a", Owner: fmt.Sprint(n), ID: fmt.Sprintf("%032d", n), Mode: store.Shared, Tokens: 1}
		e := newEntry(s.keys.keysOf(req.Name, req.Owner, req.ID, req.Mode), req)
		e.create = int64(1 + n)
		v.queue = append(v.queue, e)
	}
	ops := []clientv3.Op{next(v.leadingReaders()...)}
	for n := len(ops); n < maxTogether; n++ {
		k := idKeys{dir: s.keys.dir(fmt.Sprint(n))}
		ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{k.noForeign()}, []clientv3.Op{k.look()}, nil))
	}
	if _, err := s.together.send(t.Context(), clientv3.OpTxn(nil, ops, nil)); err != nil {
		t.Error(err)
	}
}

// slowly is a server that takes its time for each call.
type slowly struct {
	clientv3.KV
	takes time.Duration
}

func (k slowly) Do(ctx context.Context, _ clientv3.Op) (clientv3.OpResponse, error) {
	select {
	case <-time.After(k.takes):
		one := &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: &pb.TxnResponse{}}}
		return (&clientv3.TxnResponse{Header: &pb.ResponseHeader{}, Responses: []*pb.ResponseOp{one}}).OpResponse(), nil
	case <-ctx.Done():
		return clientv3.OpResponse{}, ctx.Err()
	}
}

// A server takes longer than usual for a call that operations share. It has as long as their callers wait.
func TestSharedCallLastsAsLongAsItsCallers(t *testing.T) {
	inVitro(t, func(t *testing.T, s *Store) {
		s.client.KV = slowly{takes: 2 * callTimeout}
		ctx, cancel := context.WithTimeout(t.Context(), 3*callTimeout)
		defer cancel()
		s.together.calls, s.together.patience = maxCalls, time.Hour
		time.AfterFunc(time.Second, s.together.answered)
		if _, _, err := s.together.do(ctx, "a", clientv3.OpTxn(nil, nil, nil)); err != nil {
			t.Error(err)
		}
	})
}

// A call of one operation is refused for its size. Operations of other calls travel together as before.
func TestOneLargeOperationPartsNoOthers(t *testing.T) {
	t.Parallel()
	s, err := Open(etcdtest.Start(t, 1, "--max-txn-ops=64").URL())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ops := make([]clientv3.Op, 64)
	for n := range ops {
		ops[n] = clientv3.OpGet("a")
	}
	s.together.sendAll([]*operation{{op: clientv3.OpTxn(nil, ops, nil), done: make(chan struct{})}})
	if s.together.most != maxTogether {
		t.Errorf("%d operations travel together from then on", s.together.most)
	}
}

// value is an entry as its key has it.
type value struct {
	Format int    `json:"dlock"`
	ID     string `json:"id"`
	Lease  string `json:"lease"`
	Token  string `json:"token,omitempty"`
	Owner  string `json:"owner"`
	Label  string `json:"label,omitempty"`
	TTL    string `json:"ttl"`
	Wait   string `json:"wait_ttl"`
	Tokens int    `json:"tokens"`
}

// A value is what encoding/json makes of it, whatever the label and the owner are.
func TestValueIsJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "host/1", `a"b\c`, "<&>", "\x00\n\u2028é", "\xff\xfe"} {
		for _, token := range []string{"", ownRevision, "65536"} {
			req := store.Request{Owner: text, Label: text, TTL: 90 * time.Second, WaitTTL: time.Millisecond, Tokens: 3}
			e := newEntry(idKeys{tag: "0a", id: "1b"}, req)
			want, err := json.Marshal(value{2, "0a/1b", "7f", token, store.Short(text), text, "1m30s", "1ms", 3})
			if got := e.encode(token, 0x7f); err != nil || got != string(want) {
				t.Errorf("%s, want %s, %v", got, want, err)
			}
		}
	}
}

// A member that has lost the others does not say that a hold is there: it may lag behind.
func TestFault53RenewalAtAMemberCutOff(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 3)
	leader, at := c.Leader(), c.Members[0]
	if at == leader {
		at = c.Members[1]
	}
	s, err := Open("etcd://" + at.Endpoint + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	req := store.Request{Name: "a", Owner: "o", ID: fmt.Sprintf("%032d", 1), TTL: time.Hour, WaitTTL: time.Hour, Tokens: 1}
	locktest.Hold(t, s, req)
	for _, m := range c.Members {
		if m != at {
			m.Pause()
			defer m.Resume()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	ref := store.Ref{Name: req.Name, Owner: req.Owner, ID: req.ID, TTL: req.TTL}
	if err := s.Renew(ctx, []store.Ref{ref})[0]; err == nil || errors.Is(err, store.ErrLost) {
		t.Errorf("%v, want an unknown outcome", err)
	}
}
