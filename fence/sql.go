package fence

// A row of a table is guarded by a column of it, token. These statements are for
// a table of values by id; put in the names of yours. What a hold protects may be
// several rows: then one of them has the token, and every transaction under the
// lock begins with SQLRead or SQLWrite of that row, whose row lock it keeps until
// it commits.
//
// A statement that finds no row has refused a stale token, provided that there is
// the row: insert it, with token 0, before the lock is used. Read in the same way
// as you write, from the primary and not from a replica.
//
// The tokens of dlock's stores fit a BIGINT. database/sql refuses a uint64 that
// does not.
const (
	// SQLTable creates the table, in PostgreSQL, MySQL and SQLite.
	SQLTable = `CREATE TABLE fenced (id VARCHAR(255) PRIMARY KEY, token BIGINT NOT NULL DEFAULT 0, value TEXT)`

	// SQLWrite writes, in PostgreSQL: $1 token, $2 id, $3 value. No row affected: stale.
	// In SQLite by a driver that binds $1 by its number, as modernc.org/sqlite does; to
	// others, such as mattn/go-sqlite3, $3 is a name and comes first: take [MySQLWrite].
	SQLWrite = `UPDATE fenced SET value = $3, token = $1 WHERE id = $2 AND token <= $1`

	// SQLRead reads, in PostgreSQL and in SQLite from 3.35: $1 token, $2 id. It writes the
	// token, because a plain SELECT would not keep an older holder from writing
	// afterwards. No row returned: stale.
	SQLRead = `UPDATE fenced SET token = $1 WHERE id = $2 AND token <= $1 RETURNING value`
)

// The same for MySQL, which has no RETURNING and no numbered parameters. SQLite
// takes them too.
const (
	// MySQLWrite writes: value, token, id, token. No row found: stale. MySQL says
	// how many rows changed, which is none where value and token are as they were;
	// have it say how many it found (clientFoundRows=true in the DSN of
	// go-sql-driver/mysql).
	MySQLWrite = `UPDATE fenced SET value = ?, token = ? WHERE id = ? AND token <= ?`

	// MySQLRaise is the first half of a read, for token, id, token. Its result does
	// not matter.
	MySQLRaise = `UPDATE fenced SET token = ? WHERE id = ? AND token <= ?`

	// MySQLRead is the second half, for id, token. No row returned: stale. The two
	// need no transaction, for the second finds the row only if no higher token
	// has come in between. Within one it needs FOR UPDATE at its end, or it may
	// read from a snapshot that is older than the first.
	MySQLRead = `SELECT value FROM fenced WHERE id = ? AND token = ?`
)
