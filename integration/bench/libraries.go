package main

import (
	"context"
	"runtime/debug"
	"slices"
	"time"
)

// lease is what every library is told to use.
const lease = 10 * time.Second

// patient is the lease that dlock gives if nothing is said.
const patient = 30 * time.Second

// client is one program that uses a library, with connections of its own.
type client interface {
	// locker is the lock of a name for one goroutine, and excludes all other
	// lockers of the name.
	locker(name string, u use) (locker, error)
}

// use is what a locker is for.
type use struct {
	apart bool // it waits at the server on its own, where it could be in a line of its process
	reads bool // it has to lock shared too
}

// locker is used by one goroutine at a time.
type locker interface {
	// lock waits for the lock. Shared is a reader's lock, where there is one.
	lock(shared bool) error
	unlock() error
}

// keeper is a locker of a library that renews, or that its caller renews.
type keeper interface {
	// keep begins to renew, if the library does not do so by itself.
	keep(lease time.Duration)
	// lost reports whether the lock was not renewed in time.
	lost() bool
}

// library is a library, and a way to use it.
type library struct {
	id     string // no other has it
	name   string // as the tables have it
	use    string // how, if there is a choice
	module string
	server string // "redis", "etcd", "postgres", or "" for none
	floor  bool   // not a library, but what one could do at best
	peer   bool
	sends  string // the command that it sends beside scripts, if any
	open   func(addr string, lease time.Duration) (client, error)
}

const (
	redisServer = "redis"
	etcdServer  = "etcd"

	postgresServer  = "postgres"
	zookeeperServer = "zookeeper"
)

var libraries = []library{
	{id: "dlock", name: "**dlock on Redis**", module: dlockModule, server: redisServer, sends: "hdel", open: openDlockRedis(0)},
	{id: "dlock-store", name: "**dlock on Redis, no local hand-over**", use: "`Options.LocalHandoffs: -1`", module: dlockModule, server: redisServer, sends: "hdel", open: openDlockRedis(-1)},
	{id: "redsync", name: "redsync", use: "on go-redis, with pauses of 50 to 250 ms", module: redsyncModule, server: redisServer, peer: true, sends: "set", open: openRedsync(0)},
	{id: "redsync-5ms", name: "redsync, 5 ms", module: redsyncModule, server: redisServer, peer: true, sends: "set", open: openRedsync(5 * time.Millisecond)},
	{id: "redsync-rueidis", name: "redsync on rueidis", use: "with the options of rueidis", module: redsyncModule, server: redisServer, peer: true, sends: "set", open: openRedsyncRueidis},
	{id: "redsync-ours", name: "redsync on rueidis, our options", use: "on the client of dlock's `redis.Open`", module: redsyncModule, server: redisServer, peer: true, sends: "set", open: openRedsyncOnOurOptions},
	{id: "redislock", name: "redislock", use: "on go-redis, with pauses of 100 ms as in its example", module: redislockModule, server: redisServer, peer: true, open: openRedislock(100 * time.Millisecond)},
	{id: "redislock-5ms", name: "redislock, 5 ms", module: redislockModule, server: redisServer, peer: true, open: openRedislock(5 * time.Millisecond)},
	{id: "rueidislock", name: "rueidislock", use: "`TryNextAfter` is a third of the lease", module: rueidisModule, server: redisServer, peer: true, open: openRueidislock},
	{id: "pair", name: "floor: SET and a script", use: "`SET NX PX`, then a script that compares and deletes", module: rueidisModule, server: redisServer, floor: true, sends: "set", open: openPair},
	{id: "publish", name: "floor: publish and retry", use: "the script publishes too; one waiter of each process retries", module: rueidisModule, server: redisServer, floor: true, sends: "set", open: openPublish},
	{id: "etcd-dlock", name: "**dlock on etcd**", module: dlockModule, server: etcdServer, open: openDlockEtcd(0)},
	{id: "etcd-dlock-store", name: "**dlock on etcd, no local hand-over**", module: dlockModule, server: etcdServer, open: openDlockEtcd(-1)},
	{id: "concurrency", name: "etcd concurrency.Mutex", use: "one `Session`; on one name one for each goroutine", module: etcdModule, server: etcdServer, peer: true, open: openConcurrency},
	{id: "etcd-pair", name: "floor: two transactions", use: "put if absent, delete if unchanged", module: etcdModule, server: etcdServer, floor: true, open: openEtcdPair},
	{id: "pg-dlock", name: "**dlock on PostgreSQL**", module: dlockModule, server: postgresServer, open: openDlockPostgres(0)},
	{id: "pg-dlock-store", name: "**dlock on PostgreSQL, no local hand-over**", module: dlockModule, server: postgresServer, open: openDlockPostgres(-1)},
	{id: "pglock", name: "pglock", use: "on pgx, with a heartbeat each third of the lease", module: pglockModule, server: postgresServer, peer: true, open: openPglock},
	{id: "advisory", name: "floor: pg_advisory_lock", use: "a connection for each lock; no lease, no token", module: pgxModule, server: postgresServer, floor: true, open: openAdvisory},
	{id: "pg-pair", name: "floor: INSERT and DELETE", use: "one statement each", module: pgxModule, server: postgresServer, floor: true, open: openPostgresPair},
	{id: "pg-notify", name: "floor: a commit with NOTIFY", use: "one statement updates a row and notifies the waiter", module: pgxModule, server: postgresServer, floor: true, open: openPostgresNotify},
	{id: "zk-dlock", name: "**dlock on ZooKeeper**", module: dlockModule, server: zookeeperServer, open: openDlockZookeeper(0)},
	{id: "zk-dlock-store", name: "**dlock on ZooKeeper, no local hand-over**", module: dlockModule, server: zookeeperServer, open: openDlockZookeeper(-1)},
	{id: "zk-lock", name: "go-zookeeper zk.Lock", use: "one session a process", module: zkModule, server: zookeeperServer, peer: true, open: openRecipe},
	{id: "sync", name: "sync", use: "`sync.Mutex`, or `sync.RWMutex` with readers; one lock in 64 is timed", floor: true, open: openSync},
}

const (
	dlockModule     = "github.com/dlock-go/dlock"
	redsyncModule   = "github.com/go-redsync/redsync/v4"
	redislockModule = "github.com/bsm/redislock"
	rueidisModule   = "github.com/redis/rueidis"
	goRedisModule   = "github.com/redis/go-redis/v9"
	etcdModule      = "go.etcd.io/etcd/client/v3"
	pgxModule       = "github.com/jackc/pgx/v5"
	pglockModule    = "cirello.io/pglock"
	zkModule        = "github.com/go-zookeeper/zk"
)

func libraryOf(id string) library {
	i := slices.IndexFunc(libraries, func(l library) bool { return l.id == id })
	return libraries[i]
}

// version of a module that this program was built from. A test program does not
// know them.
func version(module string) string {
	if module == dlockModule {
		return "this"
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == module {
			return m.Version
		}
	}
	return "unknown"
}

// in is the context of calls that nobody gives up.
var in = context.Background()
