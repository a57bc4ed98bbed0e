package peers

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/zookeepertest"
)

// site is a server, and runs of a library on it. Runs do not meet: each has
// clients and a lock of its own.
type site struct {
	library
	pulse *locktest.Pulse // of this process
	beats *locktest.Pulse // of the server
	redis *redistest.Server
	all   *masters // of a quorum
	sql   *postgrestest.Server
	rows  *pgxpool.Pool
	etcd  *etcdtest.Cluster
	admin *clientv3.Client
	zk    *zookeepertest.Ensemble
	nodes *zk.Conn // of zk
}

func newSite(t *testing.T, l library) *site {
	t.Helper()
	s := &site{library: l, pulse: locktest.WatchProcess(t, stall)}
	switch {
	case l.sql:
		s.startPostgres(t)
		return s
	case l.etcd:
		s.etcd = etcdtest.Start(t, 1)
		s.admin = s.etcd.Client(t)
		s.beats = watch(t, func() { s.admin.Get(context.Background(), "pulse") })
	case l.zookeeper:
		s.zk = zookeepertest.Start(t, 1)
		s.nodes = connectZookeeper(t, s.zk)
		s.beats = watch(t, func() { s.nodes.Exists("/pulse") })
	case l.quorum:
		s.all = startMasters(t, lease)
		s.beats = watch(t, func() {
			for _, server := range s.all.servers {
				server.Do("PING")
			}
		})
	default:
		s.redis = redistest.Start(t)
		s.redis.Client() // connects, which only this goroutine may have fail
		s.beats = watch(t, func() { s.redis.Do("PING") })
	}
	return s
}

// stall is how long this process, or a thread of it, is kept from running before
// it counts: half of the margin that dlock keeps of such a lease.
const stall = lease/200 + time.Millisecond

// watch watches a server that ask asks. It need not answer.
func watch(t *testing.T, ask func()) *locktest.Pulse {
	return locktest.WatchServer(t, stall, func() error { ask(); return nil })
}

// excused reports whether for half of the time since a moment the machine did not
// let this process or the server run, so that nothing follows from how long
// something took.
func (s *site) excused(since time.Time) bool {
	now := time.Now()
	return max(s.pulse.Stopped(since, now), s.beats.Stopped(since, now)) > now.Sub(since)/2
}

func (s *site) addr() string {
	switch {
	case s.etcd != nil:
		return s.etcd.Members[0].Endpoint
	case s.zk != nil:
		return s.zk.Members[0].Addr
	case s.sql != nil:
		return s.sql.Addr
	case s.all != nil:
		return strings.Join(s.all.addrs(), " ")
	}
	return s.redis.Addr
}

// client opens one on wires of its own, one to each server, near one without.
func (s *site) client(t testing.TB) (client, wires) {
	t.Helper()
	all, addrs := newWires(t, strings.Fields(s.addr()))
	return s.connect(t, strings.Join(addrs, " ")), all
}
func (s *site) near(t testing.TB) client {
	t.Helper()
	return s.connect(t, s.addr())
}

func (s *site) connect(t testing.TB, addr string) client {
	t.Helper()
	c, err := s.open(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// has reports whether the server has a key of the lock.
func (s *site) has(t testing.TB, name string) bool {
	t.Helper()
	if s.redis != nil {
		keys, err := s.redis.Do("KEYS", "*"+name+"*").AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		return len(keys) > 0
	}
	if s.sql != nil {
		return s.hasRow(t, name)
	}
	answer, err := s.admin.Get(context.Background(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range answer.Kvs {
		if strings.Contains(string(kv.Key), name) {
			return true
		}
	}
	return false
}

// loseAll deletes all keys.
func (s *site) loseAll(t testing.TB) {
	t.Helper()
	if s.redis != nil {
		if err := s.redis.Do("FLUSHALL").Error(); err != nil {
			t.Fatal(err)
		}
		return
	}
	if s.sql != nil {
		if _, err := s.rows.Exec(context.Background(), "DELETE FROM dlock_locks"); err != nil {
			t.Fatal(err)
		}
		return
	}
	if _, err := s.admin.Delete(context.Background(), "", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
}

// connectZookeeper returns a connection that the test closes.
func connectZookeeper(t testing.TB, e *zookeepertest.Ensemble) *zk.Conn {
	t.Helper()
	c, _, err := zk.Connect([]string{e.Members[0].Addr}, 5*time.Second, zk.WithLogger(noLog{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

type noLog struct{}

// Printf implements [zk.Logger].
func (noLog) Printf(string, ...any) {}
