package main

import (
	"context"
	"errors"
	"time"
)

var errSoldOut = errors.New("not enough stock")

// repository is the innermost layer: it keeps the stock.
type repository struct {
	locks locks
	stock stock
	io    time.Duration
	tally *tally
}

// take takes units of an article out of stock, or fails with errSoldOut. It
// reads, decides and writes, which is why it wants the lock whoever calls it.
//
// The hold's token goes with each access, reads too: should this process be
// stopped so long that its lease runs out and then go on here, the stock has
// seen the next holder's token and refuses this one.
func (r *repository) take(ctx context.Context, sku string, units int) error {
	var token uint64 // 0 with -unsafe
	if m := r.locks.of(sku); m != nil {
		hold, err := m.LockContext(ctx) // a re-entry: no call of the store
		if err != nil {
			return err
		}
		defer hold.Unlock() // should it be lost, the handler's Do reports it
		token = hold.Token()
		r.tally.locked(token, hold.Count())
	}

	left, err := r.stock.read(sku, token)
	if err != nil {
		return err
	}
	if err := r.pause(ctx); err != nil {
		return err
	}
	if left < units {
		return errSoldOut
	}
	return r.stock.write(sku, left-units, token)
}

// pause stands for the way to a database and back. Without a lock, this is when
// others read the same stock and sell it once more.
func (r *repository) pause(ctx context.Context) error {
	select {
	case <-time.After(r.io):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// book notes a sale. The books are only added to, so they need no lock.
func (r *repository) book(o order) error { return r.stock.book(o.SKU, o.Quantity) }
