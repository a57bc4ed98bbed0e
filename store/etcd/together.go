package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/store"
)

// What a server does for a call costs more than what it does for an operation. So while calls are under way, the
// operations of further requests wait, and travel in one call when one has been answered.
const (
	// maxCalls is how many calls are under way before operations wait.
	maxCalls = 4
	// maxTogether is how many operations travel in one call. The server takes 128 by default, less those inside one.
	maxTogether = 64
	// maxWait is how long an operation waits for others' calls, which a server that does not answer may have.
	maxWait = 100 * time.Millisecond
)

// combiner sends operations of different names together. The server checks the conditions of all before it carries
// out the first, so there is never more than one operation of a name in a call.
type combiner struct {
	s        *Store
	patience time.Duration // maxWait, but in tests

	mu      sync.Mutex
	calls   int // under way
	most    int // how many operations travel together
	waiting []*operation
}

// operation is a transaction on one name.
type operation struct {
	dir      string
	op       clientv3.Op
	deadline time.Time
	done     chan struct{} // closed when the rest is set

	answer *pb.TxnResponse
	err    error
	alone  bool // the call of several operations was refused, so each is sent alone
	maybe  bool // for want of space or of room in the answer, which may be said of calls that were carried out, too
}

// do carries out a transaction on one name. The revision in the answer is that of the whole call. Repeated: it was sent
// twice, and the answer is that to the second, when the first may have been carried out.
func (c *combiner) do(ctx context.Context, dir string, op clientv3.Op) (
	answer *pb.TxnResponse, repeated bool, err error,
) {
	o := &operation{dir: dir, op: op, done: make(chan struct{})}
	if o.deadline, _ = ctx.Deadline(); o.deadline.IsZero() {
		o.deadline = time.Now().Add(callTimeout)
	}
	c.mu.Lock()
	free := c.calls < maxCalls
	if free {
		c.calls++
	}
	if free || slices.ContainsFunc(c.waiting, func(other *operation) bool { return other.dir == dir }) {
		c.mu.Unlock()
		answer, err = c.send(ctx, op)
		if free {
			c.answered()
		}
		return answer, false, err
	}
	c.waiting = append(c.waiting, o)
	c.mu.Unlock()

	patience := time.NewTimer(c.patience)
	defer patience.Stop()
	select {
	case <-o.done:
	case <-patience.C:
	case <-ctx.Done():
	case <-c.s.ctx.Done():
	}
	switch unsent := c.withdraw(o); {
	case unsent && c.s.ctx.Err() != nil:
		return nil, false, store.ErrClosed
	case unsent:
		answer, err = c.send(ctx, op)
		return answer, false, err
	}
	select {
	case <-o.done:
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	if o.alone {
		o.answer, o.err = c.send(ctx, op)
	}
	return o.answer, o.maybe, o.err
}

func (c *combiner) send(ctx context.Context, op clientv3.Op) (*pb.TxnResponse, error) {
	answer, err := c.s.client.Do(ctx, op)
	if err != nil {
		return nil, err
	}
	return (*pb.TxnResponse)(answer.Txn()), nil
}

// withdraw reports whether an operation had not been sent, and will not be.
func (c *combiner) withdraw(o *operation) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.waiting, o)
	if i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	return i >= 0
}

// answered ends a call, and begins another one if operations wait.
func (c *combiner) answered() {
	c.mu.Lock()
	batch := slices.Clone(c.waiting[:min(len(c.waiting), c.most)])
	if c.waiting = slices.Delete(c.waiting, 0, len(batch)); len(batch) == 0 {
		c.calls--
	}
	c.mu.Unlock()
	if len(batch) > 0 && !c.s.spawn(func() { c.sendAll(batch); c.answered() }) {
		c.finish(batch, nil, store.ErrClosed)
	}
}

// sendAll carries out operations in one call, which lasts no longer than the longest of them may.
func (c *combiner) sendAll(batch []*operation) {
	ops, last := make([]clientv3.Op, len(batch)), time.Time{}
	for i, o := range batch {
		if ops[i] = o.op; o.deadline.After(last) {
			last = o.deadline
		}
	}
	ctx, cancel := context.WithDeadline(c.s.ctx, last)
	defer cancel()
	answer, err := c.send(ctx, clientv3.OpTxn(nil, ops, nil))
	if errors.Is(err, rpctypes.ErrTooManyOps) && len(batch) > 1 { // the server's limit is lower than usual
		c.mu.Lock()
		c.most = min(c.most, len(batch)/2)
		c.mu.Unlock()
	}
	c.finish(batch, answer, err)
}

// finish hands out the answers. A refusal may be one of a single operation, or of their size together.
func (c *combiner) finish(batch []*operation, answer *pb.TxnResponse, err error) {
	exhausted := status.Code(err) == codes.ResourceExhausted
	alone, maybe := isLeaseGone(err) || isRefusal(err) || exhausted, errors.Is(err, rpctypes.ErrNoSpace) || exhausted
	for i, o := range batch {
		if o.err, o.alone, o.maybe = err, alone, maybe; err == nil {
			o.answer = answer.Responses[i].GetResponseTxn()
			o.answer.Header = answer.Header
		}
		close(o.done)
	}
}
