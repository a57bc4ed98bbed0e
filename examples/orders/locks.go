package main

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock"
)

// openLocks does all that dlock needs: it opens a store and a client. The caller closes both with
// the function that it returns: first the client, which releases its locks, then the store.
func openLocks(cfg config, out *console) (locks, func() error, error) {
	if cfg.unsafe {
		return locks{}, func() error { return nil }, nil
	}
	st, err := openStore(cfg.store)
	if err != nil {
		return locks{}, nil, err
	}
	client, err := dlock.New(st, &dlock.Options{OnLost: func(h *dlock.Hold) {
		out.printf("lock %s lost, token %d", h.Name(), h.Token())
	}})
	if err != nil {
		return locks{}, nil, errors.Join(err, st.Close())
	}
	return locks{client}, func() error { return errors.Join(client.Close(), st.Close()) }, nil
}

// locks has the lock of each article. Without a client, which is -unsafe, it has none.
type locks struct{ client *dlock.Client }

// of returns the lock of an article, or nil with -unsafe.
func (l locks) of(sku string) *dlock.Mutex {
	if l.client == nil {
		return nil
	}
	return l.client.Mutex("sku/" + sku)
}

// do calls fn under the lock of an article.
func (l locks) do(ctx context.Context, sku string, fn func(context.Context) error) error {
	m := l.of(sku)
	if m == nil {
		return fn(ctx)
	}
	return m.Do(ctx, fn)
}
