// Package redisfence guards a value in Redis with fencing tokens, in the way of
// package fence: reads carry the token as writes do, and one that is lower than
// the highest seen is refused. The value and the highest token are fields of one
// hash, so one script checks and applies in one step, also in a cluster.
//
// It needs Redis 7.0 or newer, or Valkey, and the rights +evalsha, +eval, +hmget,
// +hset and +exists.
//
// The register is as safe as its key. It must not expire or be evicted, or an
// old holder is admitted again. What a failover loses is lost as well, value and
// token alike.
package redisfence

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/fence"
)

// ErrForeignKey: at the key is something that is no register, another type or a
// hash with no token or a token that is no number. It was left as it is.
var ErrForeignKey = errors.New("redisfence: the key is not a register")

// Register is a value in Redis, guarded by tokens. It is safe for concurrent use.
type Register struct {
	client rueidis.Client
	key    string
}

// New returns the register at a key, which exists with the first access. It
// sends nothing. The client stays the caller's.
func New(c rueidis.Client, key string) *Register { return &Register{c, key} }

// Get returns the value, and false if none was ever set, and makes the token the
// highest seen. It blocks for one round trip, bounded by ctx.
//
// The error is a [*fence.StaleError] if a higher token was seen, or matches
// ErrForeignKey; with any other nothing is known of the register, and Get may be
// repeated.
func (r *Register) Get(ctx context.Context, token uint64) (value string, ok bool, err error) {
	reply, err := r.run(ctx, token)
	if err != nil {
		return "", false, err
	}
	if reply.IsNil() {
		return "", false, nil
	}
	if value, err = reply.ToString(); err != nil {
		return "", false, fmt.Errorf("redisfence: unexpected reply: %w", err)
	}
	return value, true, nil
}

// Set replaces the value and makes the token the highest seen. It blocks for one
// round trip, bounded by ctx. The errors are those of Get.
//
// After an error of unknown outcome, the write may have been applied, or may yet
// be: it can be on its way. Equal tokens are admitted, so it could even replace a
// later Set with the same token. Take the lock anew then, and Get with the new
// token: after that the old write is refused, and the value says whether it was
// applied.
func (r *Register) Set(ctx context.Context, token uint64, value string) error {
	_, err := r.run(ctx, token, value)
	return err
}

// script is not marked as one that may be repeated, see Set.
var script = rueidis.NewLuaScript(Script)

// run returns the value that was there before.
func (r *Register) run(ctx context.Context, token uint64, value ...string) (before rueidis.RedisMessage, err error) {
	args := append([]string{strconv.FormatUint(token, 10)}, value...)
	reply, err := script.Exec(ctx, r.client, []string{r.key}, args).ToArray()
	var said *rueidis.RedisError
	switch {
	case errors.As(err, &said) && foreign(said.Error()):
		return before, fmt.Errorf("%w: %w", ErrForeignKey, err)
	case err != nil:
		return before, fmt.Errorf("redisfence: %w", err)
	case len(reply) != 2:
		return before, fmt.Errorf("redisfence: unexpected reply with %d elements", len(reply))
	}
	if admitted, err := reply[0].AsBool(); err == nil && admitted {
		return reply[1], nil
	}
	highest, err := reply[1].AsUint64()
	if err != nil {
		return before, fmt.Errorf("redisfence: unexpected reply: %w", err)
	}
	return before, &fence.StaleError{Token: token, Highest: highest}
}

// foreign reports whether an error reply is about what is at the key.
func foreign(text string) bool {
	return strings.HasPrefix(text, "FENCEFOREIGN") || strings.HasPrefix(text, "WRONGTYPE")
}
