package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/store"
)

// runConfirmed is run for a call that counts only when enough replicas have
// what it wrote, if the store was asked for that. missing is nil if they have.
func (s *Store) runConfirmed(ctx context.Context, sc *script, keys, args []string) (reply rueidis.RedisMessage, missing, err error) {
	if s.replicas == 0 {
		reply, err = s.run(ctx, sc, keys, args)
		return reply, nil, err
	}
	err = s.persist(ctx, func() error {
		reply, missing, err = s.sendConfirmed(ctx, sc, keys, args)
		return err
	})
	return reply, missing, err
}

// sendConfirmed sends the script and a WAIT over one dedicated connection, for
// WAIT speaks of the writes of its own.
func (s *Store) sendConfirmed(ctx context.Context, sc *script, keys, args []string) (reply rueidis.RedisMessage, missing, err error) {
	timeout := int64((s.replicaWait + time.Millisecond - 1) / time.Millisecond)
	err = s.client.Dedicated(func(c rueidis.DedicatedClient) error {
		wait := func() rueidis.Completed { return c.B().Wait().Numreplicas(int64(s.replicas)).Timeout(timeout).Build() }
		answers := c.DoMulti(ctx, sc.bySHA(s.client, keys, args), wait())
		if replyIs(answers[0].Error(), "NOSCRIPT") {
			answers = c.DoMulti(ctx, sc.byText(s.client, keys, args), wait())
		}
		if reply, err = answers[0].ToMessage(); err != nil {
			return err
		}
		n, err := answers[1].AsInt64()
		switch {
		case err != nil:
			missing = fmt.Errorf("%w: %w", ErrTooFewReplicas, err)
		case n < int64(s.replicas):
			missing = fmt.Errorf("%w: %d of %d", ErrTooFewReplicas, n, s.replicas)
		}
		return nil
	})
	return reply, missing, err
}

// asHint is what the sinks are told of a pushed grant. It was made by a script
// that nobody had confirmed, so with MinReplicas its waiter has to ask.
func (s *Store) asHint(e store.Event) store.Event {
	if s.replicas > 0 {
		return store.Event{}
	}
	return e
}
