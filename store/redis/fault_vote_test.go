package redis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store/redis"
)

// dialing is a client in which the calls that begin with one command wait until dialed is closed, whether
// or not their contexts end. So waits rueidis for another call's dialing.
type dialing struct {
	rueidis.Client
	first  string
	met    chan struct{} // gets one value when a call waits
	dialed chan struct{}
	passed chan struct{} // gets one value for each call that has waited
}

func (d *dialing) wait(first string) (waited bool) {
	if first == d.first {
		select {
		case d.met <- struct{}{}:
		default:
		}
		<-d.dialed
	}
	return first == d.first
}

func (d *dialing) pass(waited bool) {
	if waited {
		d.passed <- struct{}{}
	}
}

func (d *dialing) Do(ctx context.Context, c rueidis.Completed) rueidis.RedisResult {
	defer d.pass(d.wait(c.Commands()[0]))
	return d.Client.Do(ctx, c)
}

func (d *dialing) DoMulti(ctx context.Context, all ...rueidis.Completed) []rueidis.RedisResult {
	defer d.pass(d.wait(all[0].Commands()[0]))
	return d.Client.DoMulti(ctx, all...)
}

// TestFault93VoteEndsWithItsContext: a vote, and each look for the life of a server, ends with its context
// while another call dials. What was not sent by then is never sent, so it leaves no hold.
func TestFault93VoteEndsWithItsContext(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	vote := func(ctx context.Context, s *redis.Store) error {
		v, err := s.Vote(ctx, want("n", 1), 0)
		return errors.Join(err, v.Err)
	}
	for name, x := range map[string]struct {
		first   string // the command that meets the dialing
		prepare func() // the server
		call    func(context.Context, *redis.Store) error
	}{
		"the vote": {"EVALSHA", func() {
			require.NoError(t, vote(bounded(t), open(t, server.URL()))) // the server has the scripts
			server.MustDo("DEL", redis.LockKey("n"))
		}, vote},
		// The vote is repeated, and the life is asked for apart.
		"the life after a vote": {"INFO", func() { server.MustDo("SCRIPT", "FLUSH") }, vote},
		"the first life": {"EVALSHA", func() { server.MustDo("FLUSHALL") }, func(ctx context.Context, s *redis.Store) error {
			_, _, err := s.Incarnation(ctx)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			x.prepare()
			d := &dialing{Client: manyConnections(t, server.Addr), first: x.first,
				met: make(chan struct{}, 1), dialed: make(chan struct{}), passed: make(chan struct{}, 10)}
			s := newStore(t, d)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- x.call(ctx, s) }()
			select {
			case <-d.met:
			case err := <-ended:
				t.Fatal("it has met no dialing: ", err)
			}
			cancel()
			select {
			case err := <-ended:
				require.ErrorIs(t, err, context.Canceled)
			case <-time.After(ample):
				t.Error("it outlives its context")
			}
			close(d.dialed)
			<-d.passed
			if x.first == "EVALSHA" {
				require.Equal(t, "0", server.MustDo("EXISTS", redis.LockKey("n")), "a vote that was sent late")
			}
		})
	}
}
