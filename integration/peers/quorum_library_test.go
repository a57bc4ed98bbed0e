package peers

import (
	"context"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store/redis"
)

// majority is a library that locks at a majority of servers, and a way to use it.
type majority struct {
	name   string
	use    string // how, if there is a choice
	module string
	dlock  bool // so it has to keep dlock's promises
	line   bool // it differs from the one before only where many want one name
	slow   bool // a node that hangs costs it most of a minute
	open   func(addrs []string, lease time.Duration) (client, error)
}

var majorities = []majority{
	{name: "dlock, quorum", module: dlockModule, dlock: true, open: openDlockQuorum(0),
		use: "`redis.OpenQuorum` and default options. It renews what it holds, the others do not here"},
	{name: "dlock, quorum, no local hand-over", module: dlockModule, dlock: true, line: true, open: openDlockQuorum(-1),
		use: "`Options.LocalHandoffs: -1`: every turn goes through the nodes"},
	{name: "redsync", module: redsyncModule, slow: true, open: openRedsyncMajority(false),
		use: "its defaults: each node has 5 % of the lease, pauses of 50 to 250 ms between tries, all nodes are waited for; as many tries as it takes. On go-redis with its defaults, a pool of pooled connections for each server"},
	{name: "redsync, tuned", module: redsyncModule, open: openRedsyncMajority(true, redsync.WithFailFast(true), redsync.WithRetryDelay(5*time.Millisecond)),
		use: "`WithFailFast`, `WithRetryDelay` of 5 ms, `UnlockContext` with as much time as a node has; on go-redis with `ContextTimeoutEnabled`"},
}

func openDlockQuorum(handoffs int) func([]string, time.Duration) (client, error) {
	return func(addrs []string, lease time.Duration) (client, error) {
		var urls []string
		for _, addr := range addrs {
			urls = append(urls, "redis://"+addr)
		}
		s, err := redis.OpenQuorum(urls...)
		if err != nil {
			return nil, err
		}
		c, err := dlock.New(s, &dlock.Options{TTL: lease, LocalHandoffs: handoffs})
		return dlockClient{c, s}, err
	}
}

// openDlockMajority is openDlockQuorum for addresses with spaces between them.
func openDlockMajority(addrs string) (client, error) {
	return openDlockQuorum(0)(strings.Fields(addrs), lease)
}

// redsyncMajority is redsync as it is meant to be used: over several servers.
type redsyncMajority struct {
	servers []*goredislib.Client
	sync    *redsync.Redsync
	lease   time.Duration
	opts    []redsync.Option
	bounded bool // calls are given up after a time
}

func openRedsyncMajority(bounded bool, opts ...redsync.Option) func([]string, time.Duration) (client, error) {
	return func(addrs []string, lease time.Duration) (client, error) {
		c := &redsyncMajority{lease: lease, bounded: bounded}
		var pools []redsyncredis.Pool
		for _, addr := range addrs {
			r := goredislib.NewClient(&goredislib.Options{Addr: addr, ContextTimeoutEnabled: bounded})
			c.servers, pools = append(c.servers, r), append(pools, goredis.NewPool(r))
		}
		c.sync = redsync.New(pools...)
		c.opts = append([]redsync.Option{redsync.WithExpiry(lease), redsync.WithTries(100_000)}, opts...)
		return c, nil
	}
}

func (c *redsyncMajority) Lock(ctx context.Context, name string) (hold, error) {
	m := c.sync.NewMutex(name, c.opts...)
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return &redsyncVotes{m, c}, nil
}

func (c *redsyncMajority) Close() {
	for _, r := range c.servers {
		r.Close()
	}
}

// redsyncVotes is a hold that nobody renews.
type redsyncVotes struct {
	mutex *redsync.Mutex
	of    *redsyncMajority
}

func (h *redsyncVotes) Unlock() error {
	ctx := context.Background()
	if h.of.bounded {
		bounded, cancel := context.WithTimeout(ctx, h.of.lease/20)
		defer cancel()
		ctx = bounded
	}
	_, err := h.mutex.UnlockContext(ctx)
	return err
}

func (h *redsyncVotes) Lost() <-chan struct{} { return nil }
func (h *redsyncVotes) Token() uint64         { return 0 }
