package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
	"github.com/dlock-go/dlock/store/postgres"
	"github.com/dlock-go/dlock/store/redis"
	"github.com/dlock-go/dlock/store/zookeeper"
)

// openers say how each kind of store is opened, by the scheme of its URL.
var openers = map[string]func(ctx context.Context, url string) (store.Store, error){
	"redis":      openRedis,
	"rediss":     openRedis,
	"etcd":       openEtcd,
	"etcd+srv":   openEtcd,
	"postgres":   openPostgres,
	"postgresql": openPostgres,
	"zk":         func(_ context.Context, url string) (store.Store, error) { return zookeeper.Open(url) },
}

func openRedis(_ context.Context, url string) (store.Store, error) { return redis.Open(url) }

func openEtcd(_ context.Context, url string) (store.Store, error) { return etcd.Open(url) }

func openPostgres(ctx context.Context, url string) (store.Store, error) {
	return postgres.Open(ctx, url)
}

// openStore opens the store of a URL, or a quorum of the Redis servers of several URLs with
// spaces between them. Errors do not repeat the URL, which may have a password in it.
func openStore(ctx context.Context, url string) (store.Store, error) {
	urls := strings.Fields(url)
	if len(urls) > 1 {
		for _, u := range urls {
			if scheme := schemeOf(u); scheme != "redis" && scheme != "rediss" {
				return nil, errors.New("several words are the URLs of a quorum, and one of them does not begin with redis:// or rediss://; a space in a URL is %20")
			}
		}
		return redis.OpenQuorum(urls...)
	}
	open, ok := openers[schemeOf(url)]
	if !ok {
		return nil, fmt.Errorf("the URL of the store begins with none of %s", schemes())
	}
	return open(ctx, strings.TrimSpace(url))
}

func schemeOf(url string) string {
	scheme, _, _ := strings.Cut(strings.TrimSpace(url), "://")
	return scheme
}

// schemes lists what openStore knows, for people.
func schemes() string {
	return strings.Join(slices.Sorted(maps.Keys(openers)), "://, ") + "://"
}

// storeFlag is the flag --store, which most commands have.
type storeFlag struct {
	p   *Program
	url string
}

func (p *Program) storeFlag(f *flag.FlagSet) *storeFlag {
	s := &storeFlag{p: p}
	f.Func("store", "`URL` of the store, instead of DLOCK_STORE; several URLs of Redis with spaces between them are a quorum", text(&s.url))
	return s
}

// text sets a flag whose value is not empty, as a variable is that a script has not set.
func text(to *string) func(string) error {
	return func(value string) error {
		if strings.TrimSpace(value) == "" {
			return errors.New("it is empty")
		}
		*to = value
		return nil
	}
}

// resolve returns the URL of the flag or of the environment.
func (s *storeFlag) resolve() (string, error) {
	url := s.url
	if url == "" {
		url = s.p.Getenv("DLOCK_STORE")
	}
	if strings.TrimSpace(url) == "" {
		return "", usage("there is no store: give --store URL, or set DLOCK_STORE, to redis://localhost:6379 for example")
	}
	return url, nil
}

// quorum reports whether the store is several servers.
func (s *storeFlag) quorum() bool {
	url, err := s.resolve()
	return err == nil && len(strings.Fields(url)) > 1
}

// open opens the store.
func (s *storeFlag) open(ctx context.Context) (store.Store, error) {
	url, err := s.resolve()
	if err != nil {
		return nil, err
	}
	return s.p.open(ctx, url)
}

// open opens the store of a URL. It ends with ctx: few stores take a context to open.
func (p *Program) open(ctx context.Context, url string) (store.Store, error) {
	type result struct {
		st  store.Store
		err error
	}
	opened := make(chan result, 1)
	go func() {
		st, err := p.Open(ctx, url)
		opened <- result{st, err}
	}()
	select {
	case r := <-opened:
		return r.st, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx) // the process ends soon, and with it what is opened late
	}
}

// client opens the store and a client on it. close ends both.
func (s *storeFlag) client(ctx context.Context, o *dlock.Options) (c *dlock.Client, end func(), err error) {
	st, err := s.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	c, err = dlock.New(st, o)
	if err != nil {
		st.Close()
		return nil, nil, err
	}
	return c, func() { c.Close(); st.Close() }, nil
}
