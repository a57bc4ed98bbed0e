package main

import (
	"context"

	"github.com/dlock-go/dlock"
)

// locks gives each layer the lock of an article. Without a client, which is
// -unsafe, there are none.
type locks struct{ client *dlock.Client }

// of returns the lock of an article; nil with -unsafe.
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
