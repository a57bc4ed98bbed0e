package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/zookeepertest"
)

// servers are those that everything is measured on, one after the other.
type servers struct {
	redis *redistest.Server
	etcd  *etcdtest.Cluster
	admin *clientv3.Client

	postgres  *postgrestest.Server
	zookeeper *zookeepertest.Ensemble
}

// startServers starts them. fsync is when Redis writes to its disk, as its appendfsync says: never if "".
func startServers(t testing.TB, fsync string) *servers {
	var config []string
	if fsync != "" {
		config = []string{"appendonly yes", "appendfsync " + fsync}
	}
	s := &servers{redis: redistest.Start(t, config...), etcd: etcdtest.Start(t, 1)}
	s.admin = s.etcd.Client(t)
	s.postgres = postgrestest.Start(t, "fsync=on", "shared_preload_libraries=pg_stat_statements")
	if err := preparePostgres(s.postgres); err != nil {
		t.Fatalf("the tables in PostgreSQL: %v", err)
	}
	s.zookeeper = zookeepertest.Start(t, 1)
	return s
}

// addr of the server that a library wants.
func (s *servers) addr(l library) string {
	switch l.server {
	case redisServer:
		return s.redis.Addr
	case etcdServer:
		return s.etcd.Members[0].Endpoint
	case postgresServer:
		return s.postgres.URLOf(benchDatabase)
	case zookeeperServer:
		return s.zookeeper.Members[0].Addr
	}
	return ""
}

// versions of the servers.
func (s *servers) versions() (string, error) {
	redis := regexp.MustCompile(`redis_version:(\S+)`).FindStringSubmatch(s.redis.MustDo("INFO", "server"))
	if redis == nil {
		return "", fmt.Errorf("the Redis server does not say its version")
	}
	status, err := s.admin.Status(in, s.etcd.Members[0].Endpoint)
	if err != nil {
		return "", err
	}
	c, err := pgx.Connect(in, s.postgres.URLOf(benchDatabase))
	if err != nil {
		return "", err
	}
	defer c.Close(in)
	var postgres string
	if err := c.QueryRow(in, "SELECT split_part(current_setting('server_version'), ' ', 1)").Scan(&postgres); err != nil {
		return "", err
	}
	return fmt.Sprintf("Redis %s without persistence, PostgreSQL %s, etcd %s and ZooKeeper %s without fsync", redis[1], postgres, status.Version, s.zookeeper.Members[0].Version()), nil
}

// clear deletes all keys and rows of the servers. What a killed worker left behind would
// otherwise be there in the next measurement.
func (s *servers) clear() error {
	s.redis.MustDo("FLUSHALL")
	leases, err := s.admin.Leases(in)
	if err != nil {
		return err
	}
	for _, l := range leases.Leases {
		s.admin.Revoke(in, l.ID) // it may have ended by itself
	}
	if _, err = s.admin.Delete(in, "", clientv3.WithPrefix()); err != nil {
		return err
	}
	if err := clearZookeeper(s.zookeeper); err != nil {
		return err
	}
	return clearPostgres(s.postgres)
}

// load is what a server has done so far.
type load struct {
	requests float64       // commands that clients have sent, not those inside scripts
	took     time.Duration // for them; not known of etcd
	cpu      time.Duration // of the whole server; known of Redis alone
}

func (l load) since(before load) load {
	return load{l.requests - before.requests, l.took - before.took, l.cpu - before.cpu}
}

// load of the server that a library uses.
func (s *servers) load(l library) (load, error) {
	switch l.server {
	case redisServer:
		done, err := parseStats(s.redis.MustDo("INFO", "commandstats"), l.sends)
		if err == nil {
			done.cpu, err = parseCPU(s.redis.MustDo("INFO", "cpu"))
		}
		return done, err
	case etcdServer:
		return scrape("http://" + s.addr(l) + "/metrics")
	case postgresServer:
		return loadPostgres(s.postgres)
	case zookeeperServer:
		return loadZookeeper(s.zookeeper)
	}
	return load{}, nil
}

// sent are the commands that all libraries send. What others a library sends is in its
// entry; the rest are in scripts, and their time is in that of the script. HDEL counts
// for dlock wherever it is, so that where requests wait there are up to two too many a turn.
var sent = []string{"eval", "evalsha", "fcall", "subscribe", "ssubscribe", "unsubscribe", "sunsubscribe"}

var commandStat = regexp.MustCompile(`(?m)^cmdstat_([^:]+):calls=(\d+),usec=(\d+)`)

func parseStats(info, sends string) (l load, err error) {
	for _, m := range commandStat.FindAllStringSubmatch(info, -1) {
		if !slices.Contains(sent, m[1]) && m[1] != sends {
			continue
		}
		calls, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return l, err
		}
		micros, err := strconv.ParseInt(m[3], 10, 64)
		if err != nil {
			return l, err
		}
		l.requests += calls
		l.took += time.Duration(micros) * time.Microsecond
	}
	return l, nil
}

var cpuStat = regexp.MustCompile(`(?m)^used_cpu_(?:sys|user):(\S+)`)

// parseCPU is the processor time of a Redis server, of its threads that write to the disk too.
func parseCPU(info string) (cpu time.Duration, err error) {
	for _, m := range cpuStat.FindAllStringSubmatch(info, -1) {
		seconds, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return 0, err
		}
		cpu += time.Duration(seconds * float64(time.Second))
	}
	return cpu, nil
}

// scrape counts the messages that etcd has received from clients, of streams too.
func scrape(url string) (l load, err error) {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Get(url)
	if err != nil {
		return l, err
	}
	defer reply.Body.Close()
	for lines := bufio.NewScanner(reply.Body); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), "grpc_server_msg_received_total{")
		if !ok {
			continue
		}
		_, value, _ := strings.Cut(rest, "} ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return l, err
		}
		l.requests += n
	}
	return l, nil
}

// stand is the testing.TB of servers that are started outside of a test. It has
// no more of it than they use. A failure is a panic with a fault.
type stand struct {
	testing.TB
	undo []func()
}

type fault string

func (s *stand) Helper()          {}
func (s *stand) Cleanup(f func()) { s.undo = append(s.undo, f) }

func (s *stand) Fatal(args ...any)                 { panic(fault(fmt.Sprint(args...))) }
func (s *stand) Fatalf(format string, args ...any) { panic(fault(fmt.Sprintf(format, args...))) }
func (s *stand) Errorf(format string, args ...any) { panic(fault(fmt.Sprintf(format, args...))) }

func (s *stand) TempDir() string {
	dir, err := os.MkdirTemp("", "dlock-bench-")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (s *stand) Context() context.Context { return in }

// end undoes everything, the last first.
func (s *stand) end() {
	for _, f := range slices.Backward(s.undo) {
		f()
	}
}
