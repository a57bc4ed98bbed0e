package etcd_test

import (
	"context"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/proxytest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

// site is a cluster, a wire to it that can be tampered with, and a handle on its
// locks that sees the servers directly.
type site struct {
	t       *testing.T
	cluster *etcdtest.Cluster
	admin   *clientv3.Client
	direct  *etcd.Store
	wire    *wire
}

func newSite(t *testing.T, members int, flags ...string) *site {
	t.Helper()
	c := etcdtest.Start(t, members, flags...)
	return &site{t: t, cluster: c, admin: c.Client(t), direct: open(t, c.URL()), wire: &wire{}}
}

// near is a client that sees the servers directly, far one behind the wire.
func (s *site) near(o dlock.Options) *dlock.Client {
	s.t.Helper()
	return locktest.NewClient(s.t, open(s.t, s.cluster.URL()), o)
}
func (s *site) far(o dlock.Options) *dlock.Client {
	s.t.Helper()
	return locktest.NewClient(s.t, s.wire.store(s.t, s.cluster.Endpoints()), o)
}

// behind is a client behind proxies, one for each member.
func (s *site) behind(o dlock.Options) (*dlock.Client, []*proxytest.Proxy) {
	s.t.Helper()
	var proxies []*proxytest.Proxy
	var addrs []string
	for _, m := range s.cluster.Members {
		p := proxytest.Start(s.t, m.Endpoint)
		proxies, addrs = append(proxies, p), append(addrs, p.Addr)
	}
	return locktest.NewClient(s.t, open(s.t, "etcd://"+strings.Join(addrs, ",")+"/"), o), proxies
}

// state asks the servers themselves.
func (s *site) state(name string) store.State {
	s.t.Helper()
	state, err := s.direct.Inspect(context.Background(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	return state
}

func (s *site) queued(name string, n int) {
	s.t.Helper()
	locktest.Queued(s.t, s.direct, name, n)
}

// holds asserts that the hold is good and the only one the servers have.
func (s *site) holds(h *dlock.Hold) {
	s.t.Helper()
	locktest.OnlyHold(s.t, h, s.state(h.Name()))
}

// over asserts that nobody holds name or waits for it, and that no key is left
// when the ids that are buried have been forgotten.
func (s *site) over(name string, o dlock.Options) {
	s.t.Helper()
	locktest.Unused(s.t, s.state(name))
	s.empty(o.TTL + 2*time.Second)
}

// empty waits until no key is left.
func (s *site) empty(within time.Duration) {
	s.t.Helper()
	deadline := time.Now().Add(within)
	for keys := s.keys(); len(keys) > 0; keys = s.keys() {
		if time.Now().After(deadline) {
			s.t.Fatalf("%d keys are left after %v, the first is %q", len(keys), within, keys[0])
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (s *site) keys() (keys []string) {
	s.t.Helper()
	answer, err := s.admin.Get(context.Background(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, kv := range answer.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

func (s *site) leases() int {
	s.t.Helper()
	answer, err := s.admin.Leases(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	return len(answer.Leases)
}

// What may happen to a request.
type action int

const (
	pass     action = iota
	cutAsk          // the connection breaks before the request has left
	cutReply        // the request is applied, and the connection breaks
	mute            // the request is applied, and nothing is heard until the caller gives up
	twice           // the request is applied twice; the second answer is heard
	slow            // the request is applied, and its answer takes slowness
	full            // the request is refused for want of space
	overfull        // the request is applied, and then said to be refused for want of space
	keep            // the request is applied, and its answer comes at arrive
	hold            // the request arrives at arrive, also when its caller has gone; not of streams
)

// slowness is more than the shortest lease.
const slowness = 1300 * time.Millisecond

// wire is what the requests of a client go through, unary ones and keep-alives.
type wire struct {
	mu    sync.Mutex
	sent  map[string]int // method -> requests since the last plan
	meets func(method string, n int) action

	kept bool           // an answer is there that is kept until arrive
	gate chan struct{}  // closed when what is held may arrive; nil if nothing was held
	late sync.WaitGroup // requests that are held
}

// on has the requests of a method ("Txn", "LeaseGrant", "Range", ...) with these
// numbers, counted from now on, meet an action; all of them if there are no
// numbers. Others pass.
func (w *wire) on(method string, a action, numbers ...int) {
	w.plan(func(m string, n int) action {
		if m == method && (len(numbers) == 0 || slices.Contains(numbers, n)) {
			return a
		}
		return pass
	})
}

// plan says what happens to the n-th request of a method, counted from now on.
func (w *wire) plan(meets func(method string, n int) action) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent, w.meets = make(map[string]int), meets
}

// requests counts those of a method since the last plan.
func (w *wire) requests(method string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent[method]
}

// watches waits until the first waiter behind the wire has its watch, after which it has
// looked once. Requests have to be counted already.
func (s *site) watches() {
	s.t.Helper()
	locktest.Poll(s.t, "a watch", locktest.Patience, func() bool { return s.wire.requests("Range") >= 1 })
}

func (w *wire) next(method string) action {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.meets == nil {
		return pass
	}
	w.sent[method]++
	return w.meets(method, w.sent[method])
}

var broken = status.Error(codes.Unavailable, "the connection is broken, by order of the test")

// hold runs f at arrive, and delivers its error.
func (w *wire) hold(f func() error) <-chan error {
	answer := make(chan error, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gate == nil {
		w.gate = make(chan struct{})
	}
	gate := w.gate
	w.late.Go(func() {
		<-gate
		answer <- f()
	})
	return answer
}

// keeps reports whether an answer is kept until arrive.
func (w *wire) keeps() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kept
}

// arrive lets the requests that are held arrive, and waits until they are
// answered.
func (w *wire) arrive() {
	w.mu.Lock()
	if w.gate != nil {
		close(w.gate)
		w.gate = nil
	}
	w.mu.Unlock()
	w.late.Wait()
}

func (w *wire) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	a := w.next(path.Base(method))
	switch a {
	case cutAsk:
		return broken
	case full:
		return rpctypes.ErrGRPCNoSpace
	case hold:
		answer := w.hold(func() error { return invoke(context.WithoutCancel(ctx), method, req, reply, cc, opts...) })
		select {
		case err := <-answer:
			return err
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	err := invoke(ctx, method, req, reply, cc, opts...)
	switch a {
	case cutReply:
		return broken
	case overfull:
		return rpctypes.ErrGRPCNoSpace
	case keep:
		w.mu.Lock()
		w.kept = true
		w.mu.Unlock()
		return <-w.hold(func() error { return err })
	case slow:
		select {
		case <-time.After(slowness):
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	case mute:
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	case twice:
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	return err
}

// stream is intercept for keep-alives, each of which has a stream of its own.
func (w *wire) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	a := pass
	if path.Base(method) == "LeaseKeepAlive" {
		a = w.next(path.Base(method))
	}
	if a == cutAsk {
		return nil, broken
	}
	st, err := open(ctx, desc, cc, method, opts...)
	return &keepAlive{st, a}, err
}

type keepAlive struct {
	grpc.ClientStream
	meets action
}

func (k *keepAlive) RecvMsg(m any) error {
	err := k.ClientStream.RecvMsg(m)
	switch k.meets {
	case cutReply:
		return broken
	case mute:
		<-k.Context().Done()
		return status.FromContextError(k.Context().Err()).Err()
	}
	return err
}

// store is a handle whose requests go through the wire.
func (w *wire) store(t *testing.T, endpoints []string) *etcd.Store {
	return w.storeBy(t, endpoints, func(*clientv3.Client) {})
}

// storeBy is store with a client that is changed before.
func (w *wire) storeBy(t *testing.T, endpoints []string, change func(*clientv3.Client)) *etcd.Store {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(w.intercept), grpc.WithChainStreamInterceptor(w.stream)},
	})
	if err != nil {
		t.Fatal(err)
	}
	change(client)
	s, err := etcd.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.arrive(); s.Close(); client.Close() })
	return s
}
