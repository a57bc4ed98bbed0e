package peers

import (
	"context"
	"os"
	"regexp"
	"testing"
)

// client is one program that uses a library, with connections of its own.
type client interface {
	// Lock waits for the lock of a name. Its ctx is cancelled when the caller
	// gives up and otherwise lives longer than the hold, as one library wants it.
	Lock(ctx context.Context, name string) (hold, error)
	Close()
}

type hold interface {
	Unlock() error
	// Lost is closed when the holder is told that it has lost the lock.
	Lost() <-chan struct{}
	// Token is a fencing token, 0 if the library has none.
	Token() uint64
}

// library is a library, and a way to use it.
type library struct {
	name      string
	use       string // how, if there is a choice
	module    string
	etcd      bool                              // not Redis
	zookeeper bool                              // not Redis
	sql       bool                              // PostgreSQL, not Redis
	polls     bool                              // who waits asks again and again, and is not told
	dlock     bool                              // so it has to keep dlock's promises
	quorum    bool                              // three servers of Redis, with spaces between their addresses
	fault     string                            // the only fault that it is tried with; empty: all
	open      func(addr string) (client, error) // nil: the site has one
}

var libraries = []library{
	{name: "dlock on Redis", module: dlockModule, dlock: true, open: openDlockRedis},
	{name: "redsync", use: "`Extend` each third of the lease, as it comes", module: redsyncModule, polls: true, open: openRedsync},
	{name: "redsync, careful", use: "`ExtendContext` until `Until`, go-redis with `ContextTimeoutEnabled`", module: redsyncModule, polls: true, open: openCarefulRedsync},
	{name: "redsync on rueidis", use: "as redsync, with rueidis' default options", module: redsyncModule, polls: true, open: openRedsyncRueidis},
	{name: "redsync on rueidis, our options", use: "the same on the client that dlock's `redis.Open` makes", module: redsyncModule, polls: true, open: openRedsyncOnOurOptions},
	{name: "redislock", use: "`Refresh` each third of the lease, as it comes", module: redislockModule, polls: true, open: openRedislock},
	{name: "redislock, careful", use: "`Refresh` bounded by a third of the lease, go-redis with `ContextTimeoutEnabled`", module: redislockModule, polls: true, open: openCarefulRedislock},
	{name: "rueidislock", use: "as in its README for one server, with a `TryNextAfter` of a third of the lease", module: rueidisModule, open: openRueidislock},
	{name: "dlock on etcd", module: dlockModule, etcd: true, dlock: true, open: openDlockEtcd},
	{name: "dlock on PostgreSQL", module: dlockModule, sql: true, dlock: true},
	{name: "etcd concurrency", use: "a `Session` for each client", module: etcdModule, etcd: true, open: openConcurrency},
	{name: "dlock on ZooKeeper", module: dlockModule, zookeeper: true, dlock: true, fault: "overlap", open: openDlockZookeeper},
	{name: "dlock on a quorum", module: dlockModule, quorum: true, dlock: true, fault: "overlap", open: openDlockMajority},
}

const (
	dlockModule     = "github.com/dlock-go/dlock"
	redsyncModule   = "github.com/go-redsync/redsync/v4"
	redislockModule = "github.com/bsm/redislock"
	rueidisModule   = "github.com/redis/rueidis"
	goRedisModule   = "github.com/redis/go-redis/v9"
	etcdModule      = "go.etcd.io/etcd/client/v3"
)

// version is what go.mod requires of a module. A test program does not know the
// modules that it was built from.
func version(t testing.TB, module string) string {
	t.Helper()
	if module == dlockModule {
		return "this"
	}
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(mod)
	if found == nil {
		t.Fatalf("go.mod does not require %s", module)
	}
	return string(found[1])
}
