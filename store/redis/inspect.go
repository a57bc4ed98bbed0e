package redis

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/store"
)

// shown is how much of an id or owner leaves the server: [store.Short].
const shown = "6"

// Inspect implements [store.Store]. It takes one round trip, whose length and
// cost to the server grow with the number of holders and waiters. It writes nothing,
// unless an entry has died: then it deletes that first, if the server lets it, because
// a waiter may be granted by that.
func (s *Store) Inspect(ctx context.Context, name string) (store.State, error) {
	state, dead, err := s.look(ctx, name)
	if err != nil || !dead || s.deleteDead(ctx, name) != nil {
		return state, err
	}
	state, _, err = s.look(ctx, name)
	return state, err
}

// deleteDead deletes the dead entries of a name and promotes.
//
// Every renewal deletes them, and the id of this one is no hold.
func (s *Store) deleteDead(ctx context.Context, name string) error {
	n := s.keys.of(name)
	reply, err := s.call(ctx, s.scripts.renew, n, n.all(), []string{"-", "0"}) // once: while a slot moves it may not run for long
	if err != nil {
		return err
	}
	results, err := reply.ToArray()
	if err != nil || len(results) != 1 {
		return unexpected("renew", err)
	}
	if err := renewed(results[0]); !errors.Is(err, store.ErrLost) {
		return err
	}
	return nil
}

// look reports the live entries of a name, and whether there are dead ones.
func (s *Store) look(ctx context.Context, name string) (state store.State, dead bool, err error) {
	if err := s.ready(ctx); err != nil {
		return state, false, err
	}
	reply, err := s.run(ctx, s.scripts.inspect, s.keys.of(name), []string{shown})
	if err != nil {
		return state, false, s.outcomeOf(s.keys.of(name), err)
	}
	parts, err := reply.ToArray()
	if err != nil || len(parts) != 4 {
		return state, false, unexpected("inspect", err)
	}
	token, err := parts[0].AsInt64()
	if err != nil {
		return state, false, unexpected("inspect", err)
	}
	state = store.State{Name: name, Token: uint64(token)}
	if state.Holders, err = entries(parts[1]); err == nil {
		state.Queue, err = entries(parts[2])
	}
	if err != nil {
		return store.State{}, false, unexpected("inspect", err)
	}
	n, err := parts[3].AsInt64()
	return state, err == nil && n == 1, nil
}

func entries(reply rueidis.RedisMessage) ([]store.Entry, error) {
	list, err := reply.ToArray()
	if err != nil {
		return nil, err
	}
	var all []store.Entry
	for _, item := range list {
		e, err := entry(item)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

func entry(reply rueidis.RedisMessage) (e store.Entry, err error) {
	fields, err := reply.ToArray()
	if err != nil {
		return e, err
	}
	if len(fields) != 7 {
		return e, unexpected("inspect", nil)
	}
	text := func(i int) string {
		t, wrong := fields[i].ToString()
		if wrong != nil {
			err = wrong
		}
		return t
	}
	number := func(i int) int64 {
		n, wrong := fields[i].AsInt64()
		if wrong != nil {
			err = wrong
		}
		return n
	}
	e = store.Entry{
		ID: text(0), Owner: text(1), Token: uint64(number(3)),
		Remaining: time.Duration(number(4)) * time.Millisecond, Label: unescape(text(5)),
		Age: time.Duration(number(6)) * time.Millisecond,
	}
	if text(2) == "s" {
		e.Mode = store.Shared
	}
	return e, err
}

// Break implements [store.Breaker]. It takes one round trip.
func (s *Store) Break(ctx context.Context, name string) (broken int, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	n := s.keys.of(name)
	reply, err := s.run(ctx, s.scripts.release, n, nil)
	if err != nil {
		return 0, s.outcomeOf(n, err)
	}
	removed, err := reply.AsInt64()
	if err != nil {
		return 0, unexpected("release", err)
	}
	return int(removed), nil
}

// List implements [store.Lister]. It scans all keys of all masters, a thousand
// at a time, and asks for each lock that it finds whether it is in use, 32 at once. It
// takes long on a large server, though it does not block it. It needs the right to
// SCAN, which locks do not need.
func (s *Store) List(ctx context.Context) ([]string, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	nodes, err := s.masters(ctx)
	if err != nil {
		return nil, s.outcome(err)
	}
	seen := make(map[string]bool)
	var names []string
	for _, node := range nodes {
		err := scan(ctx, node, s.keys.anyLock(), math.MaxInt, func(keys []string) error {
			var found []string
			for _, key := range keys {
				if name, ok := s.keys.nameOf(key); ok && !seen[name] {
					seen[name] = true
					found = append(found, name)
				}
			}
			for some := range slices.Chunk(found, atOnce) {
				used, err := s.inUse(ctx, some)
				if err != nil {
					return err
				}
				names = append(names, used...)
			}
			return nil
		})
		if err != nil {
			return nil, s.outcome(err)
		}
	}
	return names, nil
}

// atOnce is how many names List asks for at once.
const atOnce = 32

// inUse returns those of the names that have holders or waiters.
func (s *Store) inUse(ctx context.Context, names []string) (used []string, err error) {
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, name := range names {
		asked.Go(func() {
			state, failed := s.Inspect(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(failed, store.ErrForeignKey):
			case failed != nil:
				err = failed
			case len(state.Holders)+len(state.Queue) > 0:
				used = append(used, name)
			}
		})
	}
	asked.Wait()
	return used, err
}

// scan calls f with the keys of one node that match a pattern, page by page, some of them twice. It
// ends at an error of f, and after so many pages.
func scan(ctx context.Context, node rueidis.Client, pattern string, pages int, f func(keys []string) error) error {
	var cursor uint64
	for range pages {
		page, err := askNode(ctx, node, node.B().Scan().Cursor(cursor).Match(pattern).Count(1000).Build()).AsScanEntry()
		if err != nil {
			return err
		}
		if err := f(page.Elements); err != nil {
			return err
		}
		if cursor = page.Cursor; cursor == 0 {
			break
		}
	}
	return nil
}
