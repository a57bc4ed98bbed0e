package matrix

import (
	"context"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

type etcdServer struct{ *etcdtest.Cluster }

func startEtcd(t *testing.T) server { return etcdServer{etcdtest.Start(t, 1)} }

func (s etcdServer) near(t *testing.T) store.Store {
	t.Helper()
	h, err := etcd.Open(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func (s etcdServer) far(t *testing.T) (store.Store, wire) {
	t.Helper()
	w := &etcdWire{repaired: make(chan struct{})}
	w.repair = w.mend
	client, err := clientv3.New(clientv3.Config{
		Endpoints: s.Endpoints(), Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(w.unary), grpc.WithChainStreamInterceptor(w.stream)},
	})
	if err != nil {
		t.Fatal(err)
	}
	h, err := etcd.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close(); client.Close() })
	return h, w
}

// etcdWire tampers with the requests of a client, for bytes do not say which
// reply is whose. Watches pass.
type etcdWire struct {
	plan
	mu       sync.Mutex
	muted    bool
	repaired chan struct{} // closed when a mute wire is mended
}

var broken = status.Error(codes.Unavailable, "the connection is broken, by order of the test")

func (w *etcdWire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.muted {
		w.muted = false
		close(w.repaired)
		w.repaired = make(chan struct{})
	}
}

// fate is what happens to the reply of a request, which is none of the table if
// it is empty.
func (w *etcdWire) fate(what request) (fault, <-chan struct{}) {
	how := w.meets(what)
	w.mu.Lock()
	defer w.mu.Unlock()
	if how == mute {
		w.muted = true
	}
	if w.muted {
		return mute, w.repaired
	}
	return how, nil
}

// kind is what a request is for: the store gives up by transactions that delete,
// and takes by others that write.
func kind(req any) request {
	txn, ok := req.(*pb.TxnRequest)
	if !ok {
		return ""
	}
	puts, deletes := writes(txn)
	switch {
	case deletes:
		return release
	case puts:
		return acquire
	}
	return ""
}

func writes(txn *pb.TxnRequest) (puts, deletes bool) {
	for _, op := range slices.Concat(txn.Success, txn.Failure) {
		p, d := op.GetRequestPut() != nil, op.GetRequestDeleteRange() != nil
		if nested := op.GetRequestTxn(); nested != nil {
			p, d = writes(nested)
		}
		puts, deletes = puts || p, deletes || d
	}
	return puts, deletes
}

func (w *etcdWire) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	how, repaired := w.fate(kind(req))
	err := invoke(ctx, method, req, reply, cc, opts...)
	switch how {
	case cut:
		return broken
	case mute:
		return unheard(ctx, repaired)
	case late:
		return wait(ctx, lateBy, err)
	case duplicate:
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	return err
}

// stream is unary for keep-alives, each of which has a stream of its own.
func (w *etcdWire) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	st, err := open(ctx, desc, cc, method, opts...)
	if err != nil || path.Base(method) != "LeaseKeepAlive" {
		return st, err
	}
	how, repaired := w.fate(renew)
	return &keepAlive{st, how, repaired}, nil
}

type keepAlive struct {
	grpc.ClientStream
	how      fault
	repaired <-chan struct{}
}

func (k *keepAlive) SendMsg(m any) error {
	if k.how == duplicate {
		if err := k.ClientStream.SendMsg(m); err != nil {
			return err
		}
	}
	return k.ClientStream.SendMsg(m)
}

func (k *keepAlive) RecvMsg(m any) error {
	err := k.ClientStream.RecvMsg(m)
	how := k.how
	k.how = ""
	switch how {
	case cut:
		return broken
	case mute:
		return unheard(k.Context(), k.repaired)
	case late:
		return wait(k.Context(), lateBy, err)
	case duplicate:
		return k.ClientStream.RecvMsg(m)
	}
	return err
}

// unheard waits until the caller gives up, or the wire is mended by breaking it.
func unheard(ctx context.Context, repaired <-chan struct{}) error {
	select {
	case <-repaired:
		return broken
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func wait(ctx context.Context, d time.Duration, err error) error {
	select {
	case <-time.After(d):
		return err
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}
