package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/store/model"
)

// A waiter that asks again and the renewal of a hold with waiters change deadlines and
// nothing else. Such a change needs no transaction of several statements: this handle
// reads the record, decides, and one statement swaps the record if it is still the same.
//
// A decision is right as long as no entry of the record dies. So it comes with the time
// in which it is right, and the statement compares the server's clock. It waits for no
// lock: a row that is locked is not swapped. A decision that issues a token or has an
// event is left to the transaction, because a record may change and come back to the
// same bytes, with another hold in between.

// maxLate is how much later than latest a decision may take effect: deadlines count
// from latest.
const maxLate = time.Second

// swap is a change of the record of one name.
type swap struct {
	name          string
	old, new      []byte // old nil: the record is only read
	expires       time.Time
	since, before time.Time // when the decision is right, on the server's clock
}

// found is what the server has of a name.
type found struct {
	value   []byte // nil: a lone hold, or none
	now     time.Time
	last    uint64 // token
	swapped bool
}

// swapSQL swaps records and returns what was there before. The row is locked before it
// is changed, so that the clock is compared after every wait.
func swapSQL(table, next string) string {
	return "WITH asked AS MATERIALIZED (SELECT * FROM unnest((SELECT $1::bytea[]), (SELECT $2::bytea[]), (SELECT $3::bytea[])," +
		" (SELECT $4::timestamptz[]), (SELECT $5::timestamptz[]), (SELECT $6::timestamptz[])) AS u(name, old, new, expires, since, before))," +
		" swapped AS (UPDATE " + table + " AS t SET value = a.new, expires = a.expires" +
		" FROM (SELECT row.at, u.name, u.new, u.expires FROM asked AS u, LATERAL (SELECT x.ctid AS at FROM " + table + " AS x" +
		" WHERE x.name = u.name AND x.value = u.old AND x.lone IS NULL AND clock_timestamp() >= u.since AND clock_timestamp() < u.before" +
		" FOR UPDATE SKIP LOCKED) AS row) AS a" +
		" WHERE t.name = a.name AND t.ctid = a.at RETURNING t.name)" +
		" SELECT t.name, t.value, clock_timestamp(), (SELECT " + next + "), swapped.name IS NOT NULL" +
		" FROM asked JOIN " + table + " AS t ON t.name = asked.name LEFT JOIN swapped ON swapped.name = t.name WHERE t.lone IS NULL"
}

// swap makes changes of distinct names and returns what it found.
func (b *backend) swap(ctx context.Context, changes []swap) (map[string]found, error) {
	n := len(changes)
	names, olds, news := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	expires, since, before := make([]time.Time, n), make([]time.Time, n), make([]time.Time, n)
	for i, c := range changes {
		names[i], olds[i], news[i] = []byte(c.name), c.old, c.new
		expires[i], since[i], before[i] = c.expires, c.since, c.before
	}
	rows, err := b.pool.Query(ctx, b.swaps, names, olds, news, expires, since, before)
	if err != nil {
		return nil, err
	}
	all := make(map[string]found, n)
	var name []byte
	var f found
	var drawn int64
	_, err = pgx.ForEachRow(rows, []any{&name, &f.value, &f.now, &drawn, &f.swapped}, func() error {
		f.last = uint64(drawn-1) * span
		all[string(name)] = f
		return nil
	})
	return all, err
}

// decide makes a change of a record that was read. The server's clock stood between
// earliest and latest when this call began; deadlines count from latest. ok is false if
// more than deadlines would change, or if an entry dies in between.
func decide(name string, value []byte, earliest, latest time.Time, do func(*model.Record, *model.Call)) (c swap, ok bool) {
	var r model.Record
	if r.UnmarshalBinary(value) != nil {
		return c, false
	}
	from, now := moment(earliest), moment(latest)
	dies := r.Ends(from)
	if dies <= now {
		return c, false
	}
	var counter noTokens
	call := model.Call{Now: now, Tokens: &counter}
	do(&r, &call)
	if counter.asked || len(call.Events) > 0 || r.Empty() {
		return c, false
	}
	c = swap{name: name, old: value, since: earliest, before: at(min(dies, r.Ends(now), now+maxLate)), expires: at(r.Expires())}
	c.new, _ = r.AppendBinary(make([]byte, 0, len(value)+20))
	return c, true
}

func moment(t time.Time) time.Duration { return time.Duration(t.UnixNano()) }
func at(d time.Duration) time.Time     { return time.Unix(0, int64(d)) }

// noTokens is a counter that has none, and notes that one was asked for.
type noTokens struct{ asked bool }

// Issue implements [model.Counter].
func (n *noTokens) Issue(int) (first uint64, reserved int) {
	n.asked = true
	return 0, 0
}

// Last implements [model.Counter].
func (n *noTokens) Last() uint64 { return 0 }
