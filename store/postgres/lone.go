package postgres

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/model"
)

// A lone hold is the only entry of its name. Most locks are never more than that,
// so one statement each takes, renews and releases it; a statement that finds
// anything else changes nothing, and the call goes the way of package kv.
//
// These statements pass over names and rows that are locked, so none waits for a
// transaction. The one that takes a lone hold takes the advisory lock of the name first.
// Without it, a transaction that has read that the name is free and has drawn a
// token could commit after another hold with a greater token came and went.
//
// Calls that travel together, see combiner, share a statement. Renewal and release compare
// the id and the deadline in the row.

// busy are names on which a lone hold was lately not possible.
type busy struct {
	mu    sync.Mutex
	until map[string]time.Time
}

const (
	busyFor  = time.Second
	maxNames = 10_000
)

// note says that a name is busy.
func (b *busy) note(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until == nil || len(b.until) >= maxNames {
		b.until = make(map[string]time.Time) // forgetting costs a statement
	}
	b.until[name] = time.Now().Add(busyFor)
}

// is says whether a name was busy lately.
func (b *busy) is(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	until, ok := b.until[name]
	if ok && time.Now().After(until) {
		delete(b.until, name)
		ok = false
	}
	return ok
}

// begin derives the context of a statement: it ends with Close too.
func (s *Store) begin(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if s.ctx.Err() != nil {
		return nil, nil, store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel() }, nil
}

// Acquire implements [store.Store]: one statement for a free name, else a
// transaction of two round trips. A name that was not free lately gets the
// transaction at once. A request that is queued already is one or two statements.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	if !req.Queue {
		return s.acquire(ctx, req)
	}
	if g, ok := s.again(ctx, req); ok {
		return g, nil
	}
	g, err := s.acquire(ctx, req)
	if err == nil && !g.Held {
		s.places.note(req.ID, place{})
	} else {
		s.places.forget(req.ID)
	}
	return g, err
}

func (s *Store) acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	if s.busy.is(req.Name) || req.Tokens > math.MaxInt32 { // the column short has 32 bits
		return s.Store.Acquire(ctx, req)
	}
	during, end, err := s.begin(ctx)
	if err != nil {
		return store.Grant{}, err
	}
	defer end()
	short := max(req.Tokens-span, 0)
	a := s.calls.do(during, &call{
		take: true, name: req.Name, id: req.ID, value: model.EncodeHold(nil, req, s.Handle(), 0, 0, 0),
		lease: req.TTL, short: short,
	})
	switch {
	case a.done:
		return store.Grant{Held: true, Token: uint64(a.token), Short: short, TTL: req.TTL, Holds: 1}, nil
	case a.err != nil:
		return store.Grant{}, a.err
	}
	s.busy.note(req.Name)
	return s.Store.Acquire(ctx, req)
}

// Release implements [store.Store]: one statement for a lone hold, else a
// transaction of two round trips.
func (s *Store) Release(ctx context.Context, ref store.Ref) error {
	s.places.forget(ref.ID)
	if ref.Bury || s.busy.is(ref.Name) {
		return s.Store.Release(ctx, ref)
	}
	during, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	switch a := s.calls.do(during, &call{name: ref.Name, id: ref.ID}); {
	case a.done:
		return nil
	case a.err != nil:
		return a.err
	}
	return s.Store.Release(ctx, ref)
}

// alone sends a call by itself.
func (s *Store) alone(ctx context.Context, c *call) (a answer) {
	b := s.backend
	var err error
	if c.take {
		err = b.pool.QueryRow(ctx, b.insert, lockKey(b.key, c.name), []byte(c.name), c.value, c.lease.Microseconds(), []byte(c.id), c.short).Scan(&a.token)
		a.done = err == nil
	} else {
		var tag pgconn.CommandTag
		tag, err = b.pool.Exec(ctx, b.drop, []byte(c.name), []byte(c.id))
		a.done = err == nil && tag.RowsAffected() == 1
	}
	switch {
	case a.done:
		s.counted(c.take, 1)
	case err != nil && !errors.Is(err, pgx.ErrNoRows) && !rolledBack(err):
		a.err = b.outcome(err)
	}
	return a
}

// together sends calls of one kind in one statement. It waits for no name. A call
// whose name a transaction has, or that finds anything but what it looks for,
// is not done.
func (s *Store) together(ctx context.Context, calls []*call) []answer {
	answers := make([]answer, len(calls))
	done, err := s.backend.lone(ctx, calls)
	if err != nil {
		if !undone(err) {
			for i := range answers {
				answers[i].err = s.backend.outcome(err)
			}
		}
		return answers
	}
	s.counted(calls[0].take, len(done))
	for i, c := range calls {
		token, ok := done[c.id]
		answers[i] = answer{done: ok, token: token}
		delete(done, c.id) // of two calls with one id the second meets the first one's effect
	}
	return answers
}

// lone takes lone holds or gives them back, and returns the ids for which it has
// done so, with the tokens of those taken.
func (b *backend) lone(ctx context.Context, calls []*call) (map[string]int64, error) {
	n := len(calls)
	names, ids, values := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	keys, leases, shorts := make([]int64, n), make([]int64, n), make([]int32, n)
	for i, c := range calls {
		names[i], ids[i], values[i] = []byte(c.name), []byte(c.id), c.value
		leases[i], shorts[i] = c.lease.Microseconds(), int32(c.short)
		if c.take {
			keys[i] = lockKey(b.key, c.name)
		}
	}
	var rows pgx.Rows
	var err error
	if calls[0].take {
		rows, err = b.pool.Query(ctx, b.insertAll, keys, names, values, leases, ids, shorts)
	} else {
		rows, err = b.pool.Query(ctx, b.dropAll, names, ids)
	}
	if err != nil {
		return nil, err
	}
	done := make(map[string]int64, n)
	var id []byte
	var token int64
	_, err = pgx.ForEachRow(rows, []any{&id, &token}, func() error {
		done[string(id)] = token
		return nil
	})
	return done, err
}

// counted notes that rows were made or removed.
func (s *Store) counted(made bool, rows int) {
	if made {
		s.Created(rows)
	} else {
		s.backend.dropped(rows)
	}
}

// Close implements [store.Store].
func (s *Store) Close() error {
	s.cancel()
	return s.Store.Close()
}
