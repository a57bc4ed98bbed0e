package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/model"
)

// Renew implements [store.Store]: one statement for up to 500 lone holds, one more for
// those that have waiters or other holds beside them, and transactions for what is left.
func (s *Store) Renew(ctx context.Context, holds []store.Ref) []error {
	results := make([]error, len(holds))
	var rest []int
	for start := 0; start < len(holds); start += batch {
		group := holds[start:min(start+batch, len(holds))]
		renewed := s.renewed(ctx, group)
		for i, ref := range group {
			if !renewed[ref.ID] {
				rest = append(rest, start+i)
			}
		}
	}
	if len(rest) == 0 {
		return results
	}
	others := make([]store.Ref, len(rest))
	for i, at := range rest {
		others[i] = holds[at]
	}
	for i, err := range s.Store.Renew(ctx, others) {
		results[rest[i]] = err
	}
	return results
}

// renewed renews what it can without a transaction and returns the ids. If it fails
// none counts as renewed: renewing again is harmless.
func (s *Store) renewed(ctx context.Context, refs []store.Ref) map[string]bool {
	during, end, err := s.begin(ctx)
	if err != nil {
		return nil
	}
	defer end()
	renewed, shared := s.prolong(during, refs)
	var changes []swap
	of := make(map[string][]store.Ref) // by name
	for _, ref := range refs {
		if shared[ref.Name].value != nil && !renewed[ref.ID] {
			of[ref.Name] = append(of[ref.Name], ref)
		}
	}
	for name, refs := range of {
		lost := false
		f := shared[name]
		change, ok := decide(name, f.value, f.now, f.now, func(r *model.Record, c *model.Call) {
			for _, ref := range refs {
				lost = r.Renew(c, ref) != nil || lost
			}
		})
		if ok && !lost {
			changes = append(changes, change)
		}
	}
	if len(changes) == 0 {
		return renewed
	}
	all, err := s.backend.swap(during, changes)
	if err != nil {
		return renewed
	}
	for name, f := range all {
		for _, ref := range of[name] {
			renewed[ref.ID] = renewed[ref.ID] || f.swapped
		}
	}
	return renewed
}

// prolongSQL renews lone holds, and returns the records of the other names. It passes
// over rows that are locked, so that one of them costs no other hold its lease.
func prolongSQL(table string) string {
	return "WITH asked AS MATERIALIZED (SELECT * FROM unnest((SELECT $1::bytea[]), (SELECT $2::bytea[]), (SELECT $3::bigint[])) AS u(name, id, lease))," +
		" renewed AS (UPDATE " + table + " AS t SET expires = clock_timestamp() + a.lease * interval '1 microsecond'" +
		" FROM (SELECT row.at, u.name, u.lease FROM asked AS u, LATERAL (SELECT x.ctid AS at FROM " + table + " AS x" +
		" WHERE x.name = u.name AND x.lone = u.id AND x.expires > clock_timestamp() FOR UPDATE SKIP LOCKED) AS row) AS a" +
		" WHERE t.name = a.name AND t.ctid = a.at RETURNING t.lone)" +
		" SELECT lone, NULL::bytea, NULL::bytea, clock_timestamp() FROM renewed" +
		" UNION ALL SELECT NULL, name, value, clock_timestamp() FROM " + table + " WHERE name IN (SELECT name FROM asked) AND lone IS NULL"
}

// prolong renews the lone holds among refs and returns their ids, and the records of
// the names that have more.
func (s *Store) prolong(ctx context.Context, refs []store.Ref) (renewed map[string]bool, shared map[string]found) {
	renewed, shared = make(map[string]bool, len(refs)), make(map[string]found)
	names, ids, leases := make([][]byte, len(refs)), make([][]byte, len(refs)), make([]int64, len(refs))
	for i, ref := range refs {
		names[i], ids[i], leases[i] = []byte(ref.Name), []byte(ref.ID), ref.TTL.Microseconds()
	}
	none := make(map[string]bool)
	rows, err := s.backend.pool.Query(ctx, s.backend.prolong, names, ids, leases)
	if err != nil {
		return none, nil
	}
	var id, name []byte
	var f found
	_, err = pgx.ForEachRow(rows, []any{&id, &name, &f.value, &f.now}, func() error {
		if id != nil {
			renewed[string(id)] = true
		} else {
			shared[string(name)] = f
		}
		return nil
	})
	if err != nil {
		return none, nil
	}
	return renewed, shared
}
