// Package fence is for resources that check fencing tokens: they remember the
// highest token that came with an access and refuse accesses with a lower one.
// With that, a holder that was stopped for longer than its lease and goes on
// where it was can do no harm.
//
//	var gate fence.Gate // stands before what the lock protects
//	...
//	err := gate.Do(hold.Token(), func() error { ... })
//
// # Reads carry the token too
//
// Say A holds the lock with token 41, reads, and is stopped. Its lease runs out,
// B gets token 42 and reads. If that read did not tell the resource about 42, A
// may go on and its write with 41 is accepted, for nothing higher has been
// written. Then B writes what it made of the value that it read, and A's write
// is gone, although every write had its token checked. So a read is admitted,
// and raises the highest token, like a write.
//
// That is for holders who exclude each other. Those of a reader's lock have tokens
// of their own, and the older one would be refused once the newer has come. Who
// only reads changes nothing that could be lost, and may read without a token.
//
// # What to use
//
// A [Gate] guards a Go value. Package fence/redisfence guards a value in Redis;
// it is a package of its own so that nobody compiles a Redis client who does not
// use one. The constants SQLWrite, SQLRead and so on guard a row of a table. In
// each of them the check and the access are one step: where they are two,
// another holder's access fits in between.
//
// The highest token belongs where the data is, and lasts as long: what forgets
// it admits an old holder again.
package fence

import (
	"errors"
	"fmt"
)

// ErrStale: the token is lower than the highest that the resource has seen, so
// somebody else was granted the lock meanwhile. Nothing was read or written, and
// no repetition with this token helps. It arrives in a [*StaleError].
var ErrStale = errors.New("fence: stale token")

// StaleError is the refusal of a token, with the higher one that was seen
// before. It matches [ErrStale].
type StaleError struct {
	Token   uint64 // of the access that was refused
	Highest uint64 // that the resource has seen
}

// Error names both tokens.
func (e *StaleError) Error() string {
	return fmt.Sprintf("%v %d: the highest seen is %d", ErrStale, e.Token, e.Highest)
}

// Unwrap returns ErrStale.
func (e *StaleError) Unwrap() error { return ErrStale }
