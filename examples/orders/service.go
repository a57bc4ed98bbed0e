package main

import "context"

// service is the layer of the business rules.
type service struct {
	locks      locks
	repository *repository
}

// place takes the goods and books the sale. It takes the lock itself, for it
// does not know whether its caller did: under the handler, this is a re-entry.
func (s *service) place(ctx context.Context, o order) error {
	return s.locks.do(ctx, o.SKU, func(ctx context.Context) error {
		if err := s.repository.take(ctx, o.SKU, o.Quantity); err != nil {
			return err
		}
		return s.repository.book(o)
	})
}
