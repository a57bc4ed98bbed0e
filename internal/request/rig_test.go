package request_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
)

var errReset = errors.New("connection reset")

const (
	ttl     = 10 * time.Second
	waitTTL = 6 * time.Second
	timeout = time.Second
)

// rig is a sender to a store that the test answers for.
type rig struct {
	t      *testing.T
	spy    *coretest.Spy
	events *faultstore.Store // emits the events
	sender *request.Sender
	config request.Config
	logs   *coretest.Logs
}

// inBubble runs test in a synctest bubble. At its end nothing may be under way.
func inBubble(t *testing.T, test func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		events := faultstore.New(memory.New())
		r := &rig{t: t, spy: coretest.NewSpy(events), events: events, logs: new(coretest.Logs)}
		r.config = request.Config{TTL: ttl, WaitTTL: waitTTL, Timeout: timeout}
		r.sender = request.NewSender(r.spy, slog.New(r.logs).Warn)
		test(r)
		synctest.Wait()
		assert.Zero(t, r.sender.Listening(), "requests that listen at the end")
		assert.Zero(t, r.sender.Busy().Load(), "calls under way at the end")
		r.sender.StopAcquires()
		r.sender.StopReleases()
	})
}

// request returns a new request that may queue.
func (r *rig) request(name string) *request.Request {
	q := new(request.Request)
	owner, id := request.NewIDs()
	q.Init(r.sender, &r.config, store.Request{Name: name, ID: id, Owner: owner, Queue: true, Tokens: 1})
	return q
}

// answers has the store answer the first Acquire, the second one and so on. The last
// answer is repeated.
func (r *rig) answers(list ...func(ctx context.Context, req store.Request) (store.Grant, error)) {
	var n atomic.Int64
	r.spy.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
		return list[min(int(n.Add(1)), len(list))-1](ctx, req)
	})
}

func held(token uint64) func(context.Context, store.Request) (store.Grant, error) {
	return func(_ context.Context, req store.Request) (store.Grant, error) {
		return store.Grant{Held: true, Token: token, TTL: req.TTL, Holds: 1}, nil
	}
}

func queued(retry time.Duration) func(context.Context, store.Request) (store.Grant, error) {
	return func(context.Context, store.Request) (store.Grant, error) {
		return store.Grant{Position: 1, Retry: retry}, nil
	}
}

func failed(err error) func(context.Context, store.Request) (store.Grant, error) {
	return func(context.Context, store.Request) (store.Grant, error) { return store.Grant{}, err }
}

// silent does not answer before ctx ends.
func silent(ctx context.Context, _ store.Request) (store.Grant, error) {
	<-ctx.Done()
	return store.Grant{}, ctx.Err()
}

// during has an event arrive while the store works out answer.
func (r *rig) during(e func(store.Request), answer func(context.Context, store.Request) (store.Grant, error)) func(context.Context, store.Request) (store.Grant, error) {
	return func(ctx context.Context, req store.Request) (store.Grant, error) {
		e(req)
		return answer(ctx, req)
	}
}

// outcome is what Poll or Start has told.
type outcome struct {
	request.Answer
	after time.Duration
	calls int
}

// told collects an outcome.
type told struct {
	mu   sync.Mutex
	what outcome
}

func (o *told) get() outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.what
}

// take returns what to give to Poll or Start.
func (o *told) take() func(request.Answer) {
	began := time.Now()
	return func(a request.Answer) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.what = outcome{a, time.Since(began), o.what.calls + 1}
	}
}

// poll goes on with q from answer.
func (r *rig) poll(q *request.Request, answer request.Answer) *told {
	o := new(told)
	q.Poll(answer, o.take())
	return o
}

// released is what the store was asked to release.
type released struct {
	mu   sync.Mutex
	list []store.Ref
}

func (l *released) all() []store.Ref {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// releases records what is released. The answer depends on how many there were.
func (r *rig) releases(answer func(n int) error) *released {
	l := new(released)
	r.spy.OnRelease(func(_ context.Context, ref store.Ref) error {
		l.mu.Lock()
		l.list = append(l.list, ref)
		n := len(l.list)
		l.mu.Unlock()
		return answer(n)
	})
	return l
}

func succeed(int) error { return nil }

// cleared waits for the request to be gone from the store, and returns for how long.
func (r *rig) cleared(gone <-chan struct{}) time.Duration {
	r.t.Helper()
	began := time.Now()
	select {
	case <-gone:
	case <-time.After(time.Hour):
		r.t.Fatal("the request is not released")
	}
	return time.Since(began)
}
