package matrix

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/postgres"
)

type postgresServer struct{ url string }

func startPostgres(t *testing.T) server {
	return postgresServer{stores.NewDatabase(t, postgrestest.Start(t))}
}

func (s postgresServer) open(t *testing.T) *postgres.Store {
	t.Helper()
	h, err := postgres.Open(context.Background(), s.url+"&pool_max_conns=2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func (s postgresServer) near(t *testing.T) store.Store { return s.open(t) }

func (s postgresServer) far(t *testing.T) (store.Store, wire) {
	w := &postgresWire{Store: s.open(t), repaired: make(chan struct{})}
	w.repair = w.mend
	return w, w
}

// postgresWire tampers with the calls of a handle, for a call is several messages
// in which one does not see what it is for. Lost bytes are tested at the store.
type postgresWire struct {
	*postgres.Store
	plan
	mute     sync.Mutex
	muted    bool
	repaired chan struct{} // closed when a mute wire is mended
}

var errLostReply = errors.New("the connection is broken, by order of the test")

func (w *postgresWire) mend() {
	w.mute.Lock()
	defer w.mute.Unlock()
	if w.muted {
		w.muted = false
		close(w.repaired)
		w.repaired = make(chan struct{})
	}
}

// call makes a call and does to its answer what the plan says. The server gets the
// call in any case, also when its caller has gone.
func (w *postgresWire) call(ctx context.Context, what request, do func(ctx context.Context) error) error {
	how := w.meets(what)
	w.mute.Lock()
	if how == mute {
		w.muted = true
	}
	muted, repaired := w.muted, w.repaired
	w.mute.Unlock()
	if how == "" && !muted {
		return do(ctx)
	}
	err := do(context.WithoutCancel(ctx))
	switch {
	case muted:
		select {
		case <-repaired:
			return errLostReply
		case <-ctx.Done():
			return ctx.Err()
		}
	case how == cut:
		return errLostReply
	case how == late:
		select {
		case <-time.After(lateBy):
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	case how == duplicate:
		return do(context.WithoutCancel(ctx))
	}
	return err
}

func (w *postgresWire) Acquire(ctx context.Context, req store.Request) (g store.Grant, err error) {
	answer := make(chan store.Grant, 2)
	err = w.call(ctx, acquire, func(ctx context.Context) error {
		g, err := w.Store.Acquire(ctx, req)
		answer <- g
		return err
	})
	for len(answer) > 0 {
		g = <-answer
	}
	if err != nil && !errors.Is(err, store.ErrHeld) {
		g = store.Grant{}
	}
	return g, err
}

func (w *postgresWire) Release(ctx context.Context, ref store.Ref) error {
	return w.call(ctx, release, func(ctx context.Context) error { return w.Store.Release(ctx, ref) })
}

func (w *postgresWire) Renew(ctx context.Context, refs []store.Ref) []error {
	var errs []error
	if err := w.call(ctx, renew, func(ctx context.Context) error {
		errs = w.Store.Renew(ctx, refs)
		return nil
	}); err != nil {
		errs = make([]error, len(refs))
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}
