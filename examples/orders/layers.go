package main

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock"
)

// handler is the outermost layer: it answers orders.
type handler struct {
	locks   locks
	service *service
	tally   *tally
}

// handle serves one order under the lock of its article. It passes on the context of Do, and with
// it the right to take the lock again.
//
// The error is nil if the order was accepted or turned down, or if ctx ended before it was served.
// If the lock was lost, the order has failed.
func (h *handler) handle(ctx context.Context, o order) error {
	asked := time.Now()
	err := h.locks.do(ctx, o.SKU, func(ctx context.Context) error {
		h.tally.waited(time.Since(asked))
		return h.service.place(ctx, o)
	})
	switch {
	case err == nil:
		h.tally.accepted()
	case errors.Is(err, dlock.ErrLost):
		h.tally.failed()
		return err
	case errors.Is(err, errSoldOut):
		h.tally.turnedDown()
	case ctx.Err() != nil:
		h.tally.notServed()
	default:
		h.tally.failed()
		return err
	}
	return nil
}

// service is the layer of the business rules.
type service struct {
	locks      locks
	repository *repository
}

// place takes the goods and books the sale. It takes the lock too, because it need not know whether
// its caller has it. Under the handler this is a re-entry.
func (s *service) place(ctx context.Context, o order) error {
	return s.locks.do(ctx, o.SKU, func(ctx context.Context) error {
		if err := s.repository.take(ctx, o.SKU, o.Quantity); err != nil {
			return err
		}
		return s.repository.book(o)
	})
}

var errSoldOut = errors.New("not enough stock")

// repository is the innermost layer: it keeps the stock.
type repository struct {
	locks locks
	stock stock
	io    time.Duration
	tally *tally
}

// take takes units of an article out of stock, or fails with errSoldOut. It reads, decides and
// writes, so it takes the lock too.
//
// It sends the hold's token with each access, reads too. If this process is stopped here for longer
// than its lease, the stock has seen the next holder's token by then, and refuses this one.
func (r *repository) take(ctx context.Context, sku string, units int) error {
	var token uint64 // 0 with -unsafe
	if m := r.locks.of(sku); m != nil {
		hold, err := m.LockContext(ctx) // a re-entry: no call of the store
		if err != nil {
			return err
		}
		defer hold.Unlock() // the handler's Do reports a loss
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

// pause stands for the way to a database and back. Without a lock, another order reads the same
// stock meanwhile and sells it once more.
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
