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

// handle serves one order under the lock of its article, so that nobody else
// is served between its parts. It passes on the context that the lock gave it,
// and with it the right to take the lock again further in.
//
// The error is nil also if the order was turned down or ctx ended before it
// was served. If the lock was lost on the way, the order has failed; what it
// wrote, if anything, the stock took before it had seen a later holder's token.
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
