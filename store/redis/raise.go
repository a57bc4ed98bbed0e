package redis

import (
	"context"
	"strconv"

	"github.com/dlock-go/dlock/store"
)

// RaiseToken implements [store.TokenRaiser]. It takes one round trip, blocks as
// Acquire does, and works when the server's memory is full.
func (s *Store) RaiseToken(ctx context.Context, ref store.Ref, token uint64, tokens int) (uint64, error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	args := []string{ref.ID, strconv.FormatUint(token, 10), strconv.Itoa(tokens)}
	reply, err := s.run(ctx, s.scripts.raise, s.keys.of(ref.Name), args)
	if err != nil {
		return 0, s.outcome(err)
	}
	switch raised, err := reply.AsInt64(); {
	case err != nil:
		return 0, unexpected("raise", err)
	case raised == 0:
		return 0, store.ErrLost
	default:
		return uint64(raised), nil
	}
}
