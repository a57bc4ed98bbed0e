package redis_test

import (
	"hash/crc32"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// open returns a handle with connections of its own, closed at the end of t.
func open(t testing.TB, url string) *redis.Store {
	t.Helper()
	s, err := redis.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// suite is the conformance suite for the servers of a URL, with plant to put a
// string at a key.
func suite(url string, plant func(key string)) conformance.Suite {
	return conformance.Suite{
		New:   func(t testing.TB) store.Store { return open(t, url) },
		Peer:  func(t testing.TB, _ store.Store) store.Store { return open(t, url) },
		Plant: func(_ testing.TB, _ store.Store, name string) { plant(redis.LockKey(name)) },
	}
}

// TestConformance runs the suite over each kind of servers, forms and users, two at once: the
// cases mostly wait, and more would keep each other from their deadlines.
func TestConformance(t *testing.T) {
	running := make(chan struct{}, 2)
	for what, run := range map[string]func(*testing.T){
		"standalone":              conformanceStandalone,
		"indexed":                 func(t *testing.T) { conformanceOfForm(t, 0) },
		"listed":                  func(t *testing.T) { conformanceOfForm(t, 1<<30) },
		"listeners":               conformanceOfListeners,
		"sentinel":                conformanceSentinel,
		"cluster":                 conformanceCluster,
		"replicas":                conformanceMinReplicas,
		"least privilege":         func(t *testing.T) { conformanceOfRights(t, open) },
		"least privilege indexed": func(t *testing.T) { conformanceOfRights(t, openIndexed) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			running <- struct{}{}
			defer func() { <-running }()
			run(t)
		})
	}
}

func conformanceStandalone(t *testing.T) {
	server := redistest.Start(t)
	conformance.RunSuite(t, suite(server.URL(), func(key string) {
		server.MustDo("SET", key, "not a lock")
	}))
}

// The indexed form is never left, or never used.
func conformanceOfForm(t *testing.T, listed int) {
	server := redistest.Start(t)
	s := suite(server.URL(), func(key string) { server.MustDo("SET", key, "not a lock") })
	s.New = func(t testing.TB) store.Store { return openListed(t, server.URL(), listed) }
	s.Peer = func(t testing.TB, _ store.Store) store.Store { return openListed(t, server.URL(), listed) }
	conformance.RunSuite(t, s)
}

// openListed is open with another limit of the listed form.
func openListed(t testing.TB, url string, listed int) *redis.Store {
	t.Helper()
	s, err := redis.OpenListed(url, listed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// openIndexed is open for a handle that never uses the listed form.
func openIndexed(t testing.TB, url string) *redis.Store { return openListed(t, url, 0) }

// Of a handle that has begun to listen, the first answer to a request counts: it
// does not ask again, as one does that has only just subscribed.
func conformanceOfListeners(t *testing.T) {
	server := redistest.Start(t)
	s := suite(server.URL(), func(key string) { server.MustDo("SET", key, "not a lock") })
	s.New = func(t testing.TB) store.Store { return listening(t, server.URL()) }
	s.Peer = func(t testing.TB, _ store.Store) store.Store { return listening(t, server.URL()) }
	conformance.RunSuite(t, s)
}

// listening returns a handle that is subscribed to the events of all partitions,
// for a minute at least, and whose server has the scripts of a lock.
func listening(t testing.TB, url string) *redis.Store {
	t.Helper()
	s := open(t, url)
	held, waits := newRequest(int(requests.Add(1))), newRequest(int(requests.Add(1)))
	waits.Name, waits.Queue = held.Name, true
	for _, r := range []store.Request{held, waits} {
		if _, err := s.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []store.Request{waits, held} {
		locktest.Release(t, s, r)
	}
	if err := redis.ListenEverywhere(t.Context(), s, time.Minute); err != nil {
		t.Fatal(err)
	}
	return s
}

// requests counts those of listening, which runs several times at once.
var requests atomic.Int64

func conformanceSentinel(t *testing.T) {
	servers := redistest.StartSentinel(t, 1)
	conformance.RunSuite(t, suite(servers.URL(), func(key string) {
		servers.Master().MustDo("SET", key, "not a lock")
	}))
}

func conformanceCluster(t *testing.T) {
	servers := redistest.StartCluster(t, true)
	s := suite(servers.URL(), func(key string) {
		servers.Master(redis.Slot(key)).MustDo("SET", key, "not a lock")
	})
	s.Except = map[string]string{"raising/one life": "a cluster is no node of a quorum"}
	conformance.RunSuite(t, s)
}

func conformanceMinReplicas(t *testing.T) {
	servers := redistest.StartSentinel(t, 1)
	s := suite(servers.URL()+"&min_replicas=1", func(key string) {
		servers.Master().MustDo("SET", key, "not a lock")
	})
	conformance.RunSuite(t, s)
}

// All clients of a prefix agree on the partitions of names, whatever their version.
func TestPartition(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "a", "orders/1", "\x00\xff", "ключ", strings.Repeat("x", 1024)} {
		if got, want := redis.Partition(name), int(crc32.ChecksumIEEE([]byte(name))%64); got != want {
			t.Errorf("%q is in partition %d, want %d", name, got, want)
		}
	}
}
