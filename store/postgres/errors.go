package postgres

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dlock-go/dlock/store"
)

// The server's answers that repeating a call at once does not help against. The
// transaction was not committed.
var refusals = map[string]string{
	"42P01": "the table or its sequence is missing: run postgres.Migrate",
	"42703": "the table is not one of dlock's, or of an older version: see postgres.Schema",
	"42804": "the table is not one of dlock's: see postgres.Schema",
	"42501": "no permission",
	"28000": "the server does not admit this user",
	"28P01": "the server does not accept the password",
	"3D000": "there is no such database",
	"53100": "the server's disk is full",
	"53200": "the server is out of memory, or of room for locks (max_locks_per_transaction)",
}

// outcome gives an error of pgx one of the three outcomes: certain refusals
// become ErrRefused, all else is unknown.
func (b *backend) outcome(err error) error {
	var answer *pgconn.PgError
	if err == nil || !errors.As(err, &answer) {
		return err
	}
	if why := refusal(answer); why != "" {
		return fmt.Errorf("%w: %s (SQLSTATE %s)", store.ErrRefused, why, answer.Code)
	}
	// The server's detail may repeat values of a row, so only the message stays.
	return fmt.Errorf("postgres: %s (SQLSTATE %s)", answer.Message, answer.Code)
}

// refusal says why the server has certainly not committed, "" if it is not certain. A server that ends with a
// panic, as for a full disk, may have written the commit before.
func refusal(answer *pgconn.PgError) string {
	if answer.SeverityUnlocalized == "PANIC" {
		return ""
	}
	return refusals[answer.Code]
}

// rolledBack says whether the server ended the transaction in favour of another
// one: serialization failure and deadlock. Nothing was committed.
func rolledBack(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && (answer.Code == "40001" || answer.Code == "40P01")
}

// undone says whether the server has certainly not committed and says why: for the
// sake of another transaction, or with a refusal.
func undone(err error) bool {
	var answer *pgconn.PgError
	return rolledBack(err) || errors.As(err, &answer) && refusal(answer) != ""
}
