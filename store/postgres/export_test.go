package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/kv"
	"github.com/dlock-go/dlock/store/model"
)

// OpenWith is New for as long as ctx lasts.
func OpenWith(ctx context.Context, pool *pgxpool.Pool, opts *Options) (*Store, error) {
	return open(ctx, pool, opts)
}

// LockKey is the key of the advisory lock of a name in the default table.
func LockKey(name string) int64 { return lockKey("public."+DefaultTable, name) }

// AlwaysTogether makes each call of a handle travel in the way of calls that travel
// together.
func (s *Store) AlwaysTogether() {
	s.calls.alone = func(ctx context.Context, c *call) answer { return s.together(ctx, []*call{c})[0] }
}

// ErrNotDone: a call that travelled with others has changed nothing and goes on as a
// transaction.
var ErrNotDone = errors.New("not done")

// TakeTogether takes lone holds in one statement. It returns a token or an error for
// each.
func (s *Store) TakeTogether(ctx context.Context, requests ...store.Request) ([]int64, []error) {
	var calls []*call
	for _, req := range requests {
		calls = append(calls, &call{
			take: true, name: req.Name, id: req.ID, lease: req.TTL,
			value: model.EncodeHold(nil, req, s.Handle(), 0, 0, 0),
		})
	}
	return s.results(ctx, calls)
}

// DropTogether gives lone holds back in one statement.
func (s *Store) DropTogether(ctx context.Context, refs ...store.Ref) []error {
	var calls []*call
	for _, ref := range refs {
		calls = append(calls, &call{name: ref.Name, id: ref.ID})
	}
	_, errs := s.results(ctx, calls)
	return errs
}

func (s *Store) results(ctx context.Context, calls []*call) (tokens []int64, errs []error) {
	for _, a := range s.together(ctx, calls) {
		if !a.done && a.err == nil {
			a.err = ErrNotDone
		}
		tokens, errs = append(tokens, a.token), append(errs, a.err)
	}
	return tokens, errs
}

// Swap tries to replace a record by itself with one more buried id, which is right from
// since to before on the server's clock, and says whether the server did it.
func (s *Store) Swap(ctx context.Context, name string, since, before time.Duration) (bool, error) {
	now := time.Now()
	all, err := s.backend.swap(ctx, []swap{{name: name}})
	if err != nil {
		return false, err
	}
	f := all[name]
	all, err = s.backend.swap(ctx, []swap{{
		name: name, old: f.value, new: append([]byte(nil), f.value...), expires: now.Add(time.Hour),
		since: f.now.Add(since), before: f.now.Add(before),
	}})
	return all[name].swapped, err
}

// InTransaction calls f between the two round trips of a transaction on a name.
func (s *Store) InTransaction(ctx context.Context, name string, f func()) error {
	return s.backend.Update(ctx, []string{name}, func(int, *kv.Record) { f() })
}

// Vacuum vacuums the table as after many removals.
func (s *Store) Vacuum() { s.backend.dropped(removals) }
