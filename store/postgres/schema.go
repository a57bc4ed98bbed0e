package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// schemaSQL makes the table and the sequence.
//
// value is a record of package model. If lone is set, the record is one hold with
// that id and nothing else, and its token, short, deadline and since when it is there
// are in the columns: one statement can then grant, renew or release it.
//
// Some of each page is left free, so that a renewal writes the new version of a row
// beside the old one and touches no index. There is no index on expires: it would undo this.
const schemaSQL = `CREATE TABLE IF NOT EXISTS %[1]s (
	name    bytea PRIMARY KEY,
	value   bytea NOT NULL,
	expires timestamptz NOT NULL,
	lone    bytea,
	token   bigint NOT NULL DEFAULT 0,
	short   integer NOT NULL DEFAULT 0,
	since   timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.1);
CREATE SEQUENCE IF NOT EXISTS %[2]s AS bigint CACHE 1;
`

// Schema returns the SQL that makes the table and the sequence of the locks, for
// those who keep their schema by hand. table is as in [Options]. Those who use the
// locks need SELECT, INSERT, UPDATE and DELETE on the table and USAGE on the
// sequence.
func Schema(table string) (string, error) {
	quoted, err := identifier(table)
	if err != nil {
		return "", fmt.Errorf("postgres: %w", err)
	}
	return fmt.Sprintf(schemaSQL, quoted, sequence(quoted)), nil
}

// tokenSuffix is what the name of the sequence has beside that of the table.
const tokenSuffix = "_token"

// sequence is the quoted name of the sequence of a table.
func sequence(quoted string) string { return strings.TrimSuffix(quoted, `"`) + tokenSuffix + `"` }

// Execer is a connection, a pool or a transaction of pgx.
type Execer interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
}

// Migrate makes the table and the sequence of the locks if they are not there.
// table is as in [Options]. It may run at every start of a program, also in
// several processes at once. A user that may not create them can run it when they are there.
func Migrate(ctx context.Context, db Execer, table string) error {
	quoted, err := identifier(table)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	// Two CREATE IF NOT EXISTS at once may collide in the catalogue; the lock makes the
	// second one wait. Statements that are sent together are one transaction, or part of
	// the caller's. CREATE IF NOT EXISTS needs the right to create also if there is nothing to do.
	create := fmt.Sprintf(schemaSQL, quoted, sequence(quoted))
	sql := fmt.Sprintf(`SELECT pg_advisory_xact_lock(%d); DO %s`, lockKey("migrate", ""), literal(fmt.Sprintf(
		"BEGIN IF to_regclass(%s) IS NULL OR to_regclass(%s) IS NULL THEN %s END IF; END",
		literal(quoted), literal(sequence(quoted)), create)))
	if _, err := db.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("postgres: migrate: %w", err)
	}
	return nil
}
