package real

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/internal/clocktest"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/internal/proxytest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/zookeepertest"
	"github.com/dlock-go/dlock/store"
)

// The deployments.
const (
	redisOne      = "redis"
	redisSentinel = "sentinel"
	redisCluster  = "cluster"
	redisQuorum   = "quorum"
	etcdOne       = "etcd1"
	etcdThree     = "etcd3"
	postgresOne   = "postgres"
)

var deployments = []string{redisOne, redisSentinel, redisCluster, etcdOne, etcdThree, redisQuorum, postgresOne, zookeeperOne, zookeeperThree}

// site is the servers of one history, and the wires to them.
type site struct {
	t          testing.TB
	deployment string
	needs      needs

	redis    []*redistest.Server // those that keep locks
	sentinel *redistest.Sentinel
	cluster  *redistest.Cluster
	clock    *clocktest.Clock
	etcd     *etcdtest.Cluster
	admin    *clientv3.Client

	postgres *postgrestest.Server
	database string // its URL, without wires
	looking  store.Store

	zookeeper *zookeepertest.Ensemble
	nodes     *zk.Conn

	// By worker. Where clients learn the addresses of nodes from the servers, as
	// with sentinels and in a cluster, there are none.
	wires map[int][]wire
}

// wire is a proxy between one worker and one server.
type wire interface {
	Cut()
	Blackhole(on bool)
}

// needs is what a fault needs of its servers.
type needs struct {
	durable bool // they keep their data
	clock   bool // it can be set

	replicas bool // a grant waits for one
	users    bool // they ask for a user and a password
}

func newSite(t testing.TB, deployment string, n needs) *site {
	t.Helper()
	s := &site{t: t, deployment: deployment, needs: n, wires: map[int][]wire{}}
	var config []string
	if n.durable {
		config = []string{"appendonly yes", "appendfsync always"}
	}
	switch deployment {
	case redisOne:
		var server *redistest.Server
		if n.clock {
			server, s.clock = redistest.StartWithClock(t, config...)
		} else {
			server = redistest.Start(t, config...)
		}
		s.redis = []*redistest.Server{server}
	case redisSentinel:
		s.sentinel = redistest.StartSentinel(t, 2, config...)
		s.redis = s.sentinel.Nodes
	case redisCluster:
		s.cluster = redistest.StartCluster(t, true, config...)
		s.redis = s.cluster.Nodes
	case redisQuorum:
		for range 3 {
			s.redis = append(s.redis, redistest.Start(t, config...))
		}
	case etcdOne, etcdThree:
		members := 1
		if deployment == etcdThree {
			members = 3
		}
		if n.users {
			s.etcd = etcdtest.Start(t, members, "--auth-token-ttl=1", "--bcrypt-cost=4")
			s.admin = s.guardEtcd()
			break
		}
		s.etcd = etcdtest.Start(t, members)
		s.admin = s.etcd.Client(t)
	case postgresOne:
		s.startPostgres(t, n.clock)
	case zookeeperOne:
		s.startZookeeper(t, 1)
	case zookeeperThree:
		s.startZookeeper(t, 3)
	}
	for _, server := range s.redis {
		if n.users {
			server.MustDo("ACL", "SETUSER", "locker", "on", ">secret", "~*", "&*", "+@all")
		}
	}
	return s
}

// direct is what opens the servers without wires.
func (s *site) direct() string {
	switch {
	case s.sentinel != nil:
		url := s.sentinel.URL()
		if s.needs.replicas {
			url += "&min_replicas=1&replica_timeout=200ms"
		}
		return url
	case s.cluster != nil:
		return s.cluster.URL()
	case s.etcd != nil:
		return s.as(s.etcd.URL())
	case s.postgres != nil:
		return s.database
	case s.zookeeper != nil:
		return s.zookeeper.URL(zookeeperSession)
	}
	var urls []string
	for _, server := range s.redis {
		urls = append(urls, server.URL())
	}
	return strings.Join(urls, " ")
}

// url is what a worker opens, on wires of its own: of a quorum several.
func (s *site) url(worker int) string {
	s.t.Helper()
	switch s.deployment {
	case redisOne, redisQuorum:
		var urls []string
		for _, server := range s.redis {
			p := redistest.StartProxy(s.t, server.Addr)
			s.wires[worker] = append(s.wires[worker], p)
			urls = append(urls, s.as(p.URL()))
		}
		return strings.Join(urls, " ")
	case redisSentinel, redisCluster:
		return s.direct()
	case zookeeperOne, zookeeperThree:
		return s.zookeeperURL(worker)
	case postgresOne:
		p := proxytest.Start(s.t, s.postgres.Addr)
		s.wires[worker] = append(s.wires[worker], p)
		return strings.Replace(s.database, s.postgres.Addr, p.Addr, 1)
	}
	var addrs []string
	for _, m := range s.etcd.Members {
		p := proxytest.Start(s.t, m.Endpoint)
		s.wires[worker] = append(s.wires[worker], p)
		addrs = append(addrs, p.Addr)
	}
	return s.as("etcd://" + strings.Join(addrs, ",") + "/")
}

// as adds the user to a URL, where the servers ask for one.
func (s *site) as(url string) string {
	if s.needs.users {
		return strings.Replace(url, "://", "://locker:secret@", 1)
	}
	return url
}

// master is a Redis server that keeps the locks of one of these names now.
func (s *site) master(names []string) *redistest.Server {
	s.t.Helper()
	switch {
	case s.sentinel != nil:
		return s.sentinel.Master()
	case s.cluster != nil:
		return s.cluster.Master(s.slot(names))
	}
	return s.redis[0]
}

// masters are the running Redis servers that keep locks.
func (s *site) masters() (all []*redistest.Server) {
	for _, server := range s.redis {
		if server.Running() && isMaster(server) {
			all = append(all, server)
		}
	}
	return all
}

func isMaster(server *redistest.Server) bool {
	info, err := server.Do("INFO", "replication").ToString()
	return err == nil && strings.Contains(info, "role:master")
}

// slot is where a cluster keeps one of these names, the first that somebody has or
// waits for: workers who are slow may leave one alone for long. The store's keys say
// it: how it spreads names is its own affair.
func (s *site) slot(names []string) int {
	s.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		for _, name := range names {
			for _, server := range s.masters() {
				keys := strings.Fields(server.MustDo("KEYS", "*:lock:"+name))
				if len(keys) == 0 {
					continue
				}
				slot, err := strconv.Atoi(server.MustDo("CLUSTER", "KEYSLOT", keys[0]))
				if err != nil {
					s.t.Fatal(err)
				}
				return slot
			}
		}
	}
	s.t.Fatalf("nobody takes any of %q", names)
	return 0
}

// moved reports whether another node serves now than at the start, or has served
// meanwhile, as after a failover that nobody ordered.
func (s *site) moved() bool {
	switch {
	case s.sentinel != nil:
		return s.sentinel.Epoch() > 0
	case s.cluster != nil:
		return slices.ContainsFunc(s.redis[3:], isMaster)
	}
	return false
}

// left lists what the servers keep when nobody holds or waits, besides the
// counters of tokens. An error means that a server did not answer.
func (s *site) left() (all []string, err error) {
	s.t.Helper()
	if s.etcd != nil {
		return s.leftAtEtcd()
	}
	if s.postgres != nil {
		return s.leftAtPostgres()
	}
	if s.zookeeper != nil {
		return s.leftAtZookeeper()
	}
	for _, server := range s.masters() {
		for _, key := range strings.Fields(server.MustDo("KEYS", "*")) {
			// A counter of tokens, and the life of a quorum's node, last as long as the data.
			if !strings.HasSuffix(key, "}:token") && !strings.HasSuffix(key, "}:life") {
				all = append(all, "key "+key)
			}
		}
		for _, channel := range strings.Fields(server.MustDo("PUBSUB", "SHARDCHANNELS")) {
			all = append(all, "subscription to "+channel)
		}
	}
	return all, nil
}

func (s *site) leftAtEtcd() (all []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	keys, err := s.admin.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	for _, kv := range keys.Kvs {
		all = append(all, "key "+string(kv.Key))
	}
	leases, err := s.admin.Leases(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range leases.Leases {
		all = append(all, fmt.Sprintf("lease %x", l.ID))
	}
	return all, nil
}

// grace is for how long something may be left after the last process that could
// have renewed it has gone: TTL and two seconds. The server of etcd counts in
// whole seconds, looks every half, and gives a lease its whole time again when
// its leader has changed.
func (s *site) grace(ttl time.Duration) time.Duration {
	if s.etcd != nil || s.zookeeper != nil {
		return 2*ttl + 4*time.Second
	}
	return ttl + 2*time.Second
}

// logs are those of all servers, by a name that is good for a file.
func (s *site) logs() map[string][]byte {
	logs := map[string][]byte{}
	add := func(name, path string) {
		if text, err := os.ReadFile(path); err == nil {
			logs[name] = text
		}
	}
	for i, server := range s.redis {
		add(fmt.Sprint("redis-", i+1, ".log"), server.Log())
	}
	if s.sentinel != nil {
		for i, server := range s.sentinel.Sentinels {
			add(fmt.Sprint("sentinel-", i+1, ".log"), server.Log())
		}
	}
	if s.etcd != nil {
		for i, m := range s.etcd.Members {
			add(fmt.Sprint("etcd-", i+1, ".log"), m.Log())
		}
	}
	return logs
}
