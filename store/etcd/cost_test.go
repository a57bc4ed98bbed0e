package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

// counter counts the calls of a client by their method, streams once each.
type counter struct {
	mu    sync.Mutex
	calls map[string]int
}

func (c *counter) count(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[path.Base(method)]++
}

// take returns the calls since the last take.
func (c *counter) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = make(map[string]int)
	return calls
}

// counted returns a handle whose calls are counted.
func counted(t *testing.T, c *etcdtest.Cluster) (*etcd.Store, *counter) {
	t.Helper()
	n := &counter{calls: make(map[string]int)}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints(), Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				n.count(method)
				return invoke(ctx, method, req, reply, cc, opts...)
			}),
			grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				n.count(method)
				return stream(ctx, desc, cc, method, opts...)
			}),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := etcd.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); client.Close() })
	return s, n
}

func newRequest(name string, n int) store.Request {
	return store.Request{
		Name: name, Owner: fmt.Sprintf("%032x", n), ID: fmt.Sprintf("%032x", n),
		TTL: time.Minute, WaitTTL: 5 * time.Second, Tokens: 1, Label: "host/12345",
	}
}

// TestRoundTrips: once a handle has a lease, a lock and its unlock are two
// requests, a busy try is one, and a renewal is one for each 128 holds and one for each
// lease of 256 that has to be renewed.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	s, n := counted(t, etcdtest.Start(t, 1))
	want := func(what string, calls map[string]int) {
		t.Helper()
		if got := n.take(); fmt.Sprint(got) != fmt.Sprint(calls) {
			t.Errorf("%s: got %v, want %v", what, got, calls)
		}
	}
	acquire := func(req store.Request) {
		t.Helper()
		locktest.Hold(t, s, req)
	}
	acquire(newRequest("first", 1)) // takes the lease
	n.take()

	acquire(newRequest("a", 2))
	locktest.Release(t, s, newRequest("a", 2))
	want("lock and unlock", map[string]int{"Txn": 2})

	if _, err := s.Acquire(t.Context(), newRequest("first", 3)); !errors.Is(err, store.ErrHeld) {
		t.Fatalf("Acquire: got %v, want ErrHeld", err)
	}
	want("busy try", map[string]int{"Txn": 1})

	var refs []store.Ref
	for i := range 500 {
		req := newRequest(fmt.Sprint("many-", i), 100+i)
		req.TTL = time.Hour // a slow machine would need a keep-alive for short ones
		acquire(req)
		refs = append(refs, locktest.RefTo(req))
	}
	n.take()
	for i, err := range s.Renew(t.Context(), refs) {
		if err != nil {
			t.Fatalf("Renew %d: %v", i, err)
		}
	}
	want("renewal of 500 holds on new leases", map[string]int{"Txn": 4})
}

// TestFault90RenewalOfMany: of hundreds of holds, on a server that takes only so many
// conditions in a transaction, just those are lost that somebody has deleted.
func TestFault90RenewalOfMany(t *testing.T) {
	t.Parallel()
	for _, most := range []int{128, 100, 3} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			t.Parallel()
			cluster := etcdtest.Start(t, 1, fmt.Sprint("--max-txn-ops=", most))
			admin, s := cluster.Client(t), open(t, cluster.URL())
			var refs []store.Ref
			for i := range 300 {
				req := newRequest(fmt.Sprint("many-", i), i)
				locktest.Hold(t, s, req)
				refs = append(refs, locktest.RefTo(req))
			}
			gone := map[int]bool{0: true, 127: true, 128: true, 200: true, 299: true}
			for i := range gone {
				if _, err := admin.Delete(t.Context(), etcd.HoldOf(newRequest(refs[i].Name, i))); err != nil {
					t.Fatal(err)
				}
			}
			for i, err := range s.Renew(t.Context(), refs) {
				if gone[i] != errors.Is(err, store.ErrLost) || !gone[i] && err != nil {
					t.Errorf("hold %d: %v, deleted: %v", i, err, gone[i])
				}
			}
		})
	}
}

// TestNothingIsLeft: after Close, with holds and places given up before, the
// servers have no key and no lease of the handle.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	admin := cluster.Client(t)
	s := open(t, cluster.URL())
	for i := range 50 {
		name := fmt.Sprint("name-", i%7)
		holder, waiter := newRequest(name, 2*i+1), newRequest(name, 2*i+2)
		waiter.Queue = true
		holder.Fixed = i%2 == 0
		if _, err := s.Acquire(t.Context(), holder); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Acquire(t.Context(), waiter); err != nil {
			t.Fatal(err)
		}
		for _, req := range []store.Request{waiter, holder} {
			locktest.Release(t, s, req)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		keys, err := admin.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			t.Fatal(err)
		}
		leases, err := admin.Leases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(keys.Kvs)+len(leases.Leases) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %d keys and %d leases", len(keys.Kvs), len(leases.Leases))
		}
	}
}
