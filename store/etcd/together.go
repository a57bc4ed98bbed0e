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
	names   map[string]bool // of which an operation waits
}

func newCombiner(s *Store) combiner {
	return combiner{s: s, patience: maxWait, most: maxTogether, names: make(map[string]bool)}
}

// operation is a transaction on one name.
type operation struct {
	dir      string
	op       clientv3.Op
	deadline time.Time
	done     chan struct{} // closed when the rest is set

	answer *pb.TxnResponse
	err    error
}

var (
	// errAlone: the call of several operations was refused, so each is sent alone.
	errAlone = errors.New("etcd: to be sent alone")
	// errMaybeDone: it was refused for want of space, which etcd says of calls that it has carried out, too.
	errMaybeDone = errors.New("refused for want of space, and perhaps carried out all the same")
)

// do carries out a transaction on one name. The revision in the answer is that of the whole call. After errMaybeDone
// the caller sends it alone.
func (c *combiner) do(ctx context.Context, dir string, op clientv3.Op) (*pb.TxnResponse, error) {
	c.mu.Lock()
	if c.calls < maxCalls || c.names[dir] {
		counted := c.calls < maxCalls
		if counted {
			c.calls++
		}
		c.mu.Unlock()
		answer, err := c.alone(ctx, op)
		if counted {
			c.answered()
		}
		return answer, err
	}
	o := &operation{dir: dir, op: op, done: make(chan struct{})}
	if o.deadline, _ = ctx.Deadline(); o.deadline.IsZero() {
		o.deadline = time.Now().Add(callTimeout)
	}
	c.waiting = append(c.waiting, o)
	c.names[dir] = true
	c.mu.Unlock()

	patience := time.NewTimer(c.patience)
	defer patience.Stop()
	for answered := false; !answered; {
		select {
		case <-o.done:
			answered = true
		case <-patience.C:
			if c.withdraw(o) {
				return c.alone(ctx, op)
			}
		case <-ctx.Done():
			c.withdraw(o)
			return nil, ctx.Err()
		case <-c.s.ctx.Done():
			if c.withdraw(o) {
				return nil, store.ErrClosed
			}
			return nil, c.s.ctx.Err()
		}
	}
	if o.err == errAlone {
		return c.alone(ctx, op)
	}
	return o.answer, o.err
}

func (c *combiner) alone(ctx context.Context, op clientv3.Op) (*pb.TxnResponse, error) {
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
	if i < 0 {
		return false
	}
	c.waiting = slices.Delete(c.waiting, i, i+1)
	delete(c.names, o.dir)
	return true
}

// answered ends a call, and begins another one if operations wait.
func (c *combiner) answered() {
	c.mu.Lock()
	next := c.waiting[:min(len(c.waiting), c.most)]
	c.waiting = c.waiting[len(next):]
	for _, o := range next {
		delete(c.names, o.dir)
	}
	if len(next) == 0 {
		c.calls--
	}
	c.mu.Unlock()
	if len(next) > 0 && !c.s.tasks.Go(func() { c.send(next); c.answered() }) {
		c.finish(next, nil, store.ErrClosed)
	}
}

// send carries out operations in one call, which lasts no longer than the longest of them may.
func (c *combiner) send(all []*operation) {
	ops, last := make([]clientv3.Op, len(all)), time.Time{}
	for i, o := range all {
		if ops[i] = o.op; o.deadline.After(last) {
			last = o.deadline
		}
	}
	ctx, cancel := context.WithDeadline(c.s.ctx, last)
	defer cancel()
	answer, err := c.alone(ctx, clientv3.OpTxn(nil, ops, nil))
	if errors.Is(err, rpctypes.ErrTooManyOps) && len(all) > 1 { // the server's limit is lower than usual
		c.mu.Lock()
		c.most = min(c.most, len(all)/2)
		c.mu.Unlock()
	}
	tooLarge := status.Code(err) == codes.ResourceExhausted // for gRPC, which has not sent it
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		err = errMaybeDone
	case isLeaseGone(err) || isRefusal(err) || tooLarge: // of one operation, perhaps
		err = errAlone
	}
	c.finish(all, answer, err)
}

// finish hands out the answers.
func (c *combiner) finish(all []*operation, answer *pb.TxnResponse, err error) {
	for i, o := range all {
		if o.err = err; err == nil {
			o.answer = answer.Responses[i].GetResponseTxn()
			o.answer.Header = answer.Header
		}
		close(o.done)
	}
}
