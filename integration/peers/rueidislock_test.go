package peers

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

type rueidislockClient struct{ rueidislock.Locker }

// openRueidislock follows the README for one server of Redis 7, but for the time
// that a reply may take. Its default of 20 ms is for going on to the next key,
// and there is only one: on a busy machine a late reply would leave WithContext
// waiting for news of a lock that is free.
func openRueidislock(addr string) (client, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    lease,
		TryNextAfter:   lease / 3,
	})
	return rueidislockClient{l}, err
}

func (c rueidislockClient) Lock(ctx context.Context, name string) (hold, error) {
	held, release, err := c.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return rueidislockHold{held, release}, nil
}

type rueidislockHold struct {
	held    context.Context
	release context.CancelFunc
}

func (h rueidislockHold) Unlock() error         { h.release(); return nil }
func (h rueidislockHold) Lost() <-chan struct{} { return h.held.Done() }
func (h rueidislockHold) Token() uint64         { return 0 }
