package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/store"
)

// ErrTooFewReplicas: a request was applied but fewer than Options.MinReplicas
// replicas confirmed it in time. What came of it is unknown: repeated, it is confirmed
// when they have it, and else it has to be released.
var ErrTooFewReplicas = errors.New("redis: not confirmed by enough replicas")

// ErrNotRun: the server did not run a request, for a reason that it says and that may
// pass: it has too few replicas to write, is a replica itself, cannot write to its
// disk, or is busy in a script. The contract has such an answer count as unknown, so
// that the caller asks again. The store knows better and buries no id for it.
var ErrNotRun = errors.New("redis: the server did not run the request")

// What a server says then.
var refusesNow = []string{"NOREPLICAS", "READONLY", "MISCONF", "BUSY"}

// What a server says when it did not run a call because it cannot just now,
// though it may a moment later: a slot's keys are on two nodes or on another one
// (rueidis follows such a redirection, but not on a dedicated connection), a
// part of the cluster has no master, the data set is loading, a replica is cut
// off.
var notNow = []string{"TRYAGAIN", "MOVED", "ASK", "CLUSTERDOWN", "LOADING", "MASTERDOWN"}

// What it says when it did not run a call and will not run the next one either:
// no right to, wrong password, memory full.
var refusals = []string{"NOPERM", "NOAUTH", "WRONGPASS", "OOM"}

// indexedReply is what a script says that was called without the key of an indexed
// name. It has not run.
const indexedReply = "DLOCKINDEXED"

// foreignReply is how the scripts' own errors begin, about data that is not theirs.
const foreignReply = "DLOCKFOREIGN"

// refused reports whether a reply is one of the refusals. What the user may not
// do inside a script is NOPERM since Redis 7.2; before, it has only words.
func refused(text string) bool {
	return hasCode(text, refusals...) || strings.HasPrefix(strings.TrimPrefix(text, "ERR "), "The user executing the script can't ")
}

// foreign reports whether a reply is about data that is not of the scripts: they
// or Redis have said so, or the script broke off because a number was none.
func foreign(text string) bool {
	text = strings.TrimPrefix(text, "ERR ") // rueidis takes it off, a script does not
	switch {
	case hasCode(text, foreignReply, "WRONGTYPE"):
		return true
	case refused(text), hasCode(text, notNow...), strings.Contains(text, "SCRIPT KILL"),
		strings.HasPrefix(text, "Script attempted to "): // a key that moves to another node; half of it may be done
		return false
	}
	return strings.Contains(text, "user_script:") || strings.Contains(text, "value is not a")
}

// replyIs reports whether err is an error reply that begins with one of the
// codes. A reply is looked for in the whole chain, which rueidis.IsRedisErr
// does not do.
func replyIs(err error, codes ...string) bool {
	if err == nil {
		return false
	}
	var reply *rueidis.RedisError
	return errors.As(err, &reply) && hasCode(reply.Error(), codes...)
}

func hasCode(text string, codes ...string) bool {
	for _, code := range codes {
		if rest, ok := strings.CutPrefix(text, code); ok && (rest == "" || rest[0] == ' ') {
			return true
		}
	}
	return false
}

// notRun: the server certainly did not run the call, and may do so soon. Or
// rueidis knows no server for the slot and has not sent it.
func notRun(err error) bool { return replyIs(err, notNow...) || errors.Is(err, rueidis.ErrNoSlot) }

// outcomeOf is outcome for a call about one name.
func (s *Store) outcomeOf(n *name, err error) error {
	err = s.outcome(err)
	if errors.Is(err, store.ErrForeignKey) {
		return n.foreignKey(err)
	}
	return err
}

// outcome turns what rueidis returned into what the contract says: a sentinel
// for "certainly not", anything else for unknown. The text of a reply is kept;
// it names commands, never arguments.
func (s *Store) outcome(err error) error {
	var reply *rueidis.RedisError
	said := errors.As(err, &reply)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrClosed):
		return err
	case !said && s.closed():
		// Not ErrClosed, which says that nothing has been done: the server may have done it.
		return fmt.Errorf("redis: the store was closed during the call: %v", err)
	case said && foreign(reply.Error()):
		return fmt.Errorf("redis: %w: %w", store.ErrForeignKey, help(err))
	case said && refused(reply.Error()):
		return fmt.Errorf("redis: %w: %w", store.ErrRefused, help(err))
	case said && hasCode(reply.Error(), refusesNow...):
		return fmt.Errorf("%w: %w", ErrNotRun, help(err))
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("redis: %w", err)
}

// outcomeText is outcome for an error that a script caught and returned as text.
func outcomeText(text string) error {
	switch {
	case foreign(text):
		return fmt.Errorf("redis: %w: %s", store.ErrForeignKey, text)
	case refused(text):
		return fmt.Errorf("redis: %w: %s", store.ErrRefused, text)
	}
	return fmt.Errorf("redis: %s", text)
}

// unexpected: a reply of another shape than the script returns. Somebody else
// answered, and nothing is known.
func unexpected(script string, err error) error {
	if err == nil {
		return fmt.Errorf("redis: unexpected reply of the %s script", script)
	}
	return fmt.Errorf("redis: unexpected reply of the %s script: %w", script, err)
}
