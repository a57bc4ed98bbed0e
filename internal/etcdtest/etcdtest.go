// Package etcdtest starts real etcd servers for tests, one alone or a cluster.
// The server is the one that .ci/etcd builds, or the program that DLOCK_ETCD names.
//
// Whatever it starts ends with the test that started it. What fails fails the
// test with one sentence, so its functions and methods are for the goroutine of
// the test unless they say otherwise.
package etcdtest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/porttest"
	"github.com/dlock-go/dlock/internal/process"
)

// Cluster is an etcd cluster of this test, of one or more members.
type Cluster struct {
	// Members are in the order of their start, whoever leads.
	Members []*Member

	t testing.TB
}

// Member is an etcd server process of this test.
type Member struct {
	Endpoint string // "127.0.0.1:port" for clients, the same for all its life

	t       testing.TB
	c       *Cluster
	program string
	name    string // no other member of any cluster has it
	dir     string
	data    string // in dir
	peer    string // "127.0.0.1:port" for members
	flags   []string

	mu     sync.Mutex
	proc   *process.Process // nil: not running
	logged int64            // how long the log was when proc started
	paused bool
}

// Start starts a cluster of n members on free ports of 127.0.0.1 with their data
// in t.TempDir, with extra flags of the command line ("--max-txn-ops=8"), which
// override its own. It blocks until each member answers a linearizable read,
// fails the test if that takes longer than a minute, and kills the members when the
// test ends.
//
// A member stands for election after 0.5 to 1 s without a leader. The shortest
// lease that it grants is of 1 s: etcd takes 1.5 election timeouts and rounds
// them up to seconds. After a change of leader a lease lives up to a TTL longer.
func Start(t testing.TB, n int, extra ...string) *Cluster {
	t.Helper()
	program, err := findServer()
	if err != nil {
		t.Fatalf("etcdtest: %v", err)
	}
	c := &Cluster{t: t}
	token := rand.Text()
	for i := range n {
		c.Members = append(c.Members, &Member{
			t: t, c: c, program: program, name: fmt.Sprint("m", i, "-", token), dir: t.TempDir(),
		})
	}
	t.Cleanup(c.end)
	for attempt := 1; ; attempt++ {
		c.configure(token, attempt, extra)
		err := c.run()
		if err == nil {
			return c
		}
		c.end()
		if attempt == 5 || !errors.Is(err, errAddressInUse) {
			t.Fatalf("etcdtest: %v", err)
		}
	}
}

// configure gives the members free ports and empty directories.
func (c *Cluster) configure(token string, attempt int, extra []string) {
	c.t.Helper()
	ports := porttest.FreeAddrs(c.t, 2*len(c.Members))
	var initial []string
	for i, m := range c.Members {
		m.Endpoint, m.peer = ports[2*i], ports[2*i+1]
		m.data = filepath.Join(m.dir, fmt.Sprint("data", attempt))
		initial = append(initial, m.name+"=http://"+m.peer)
	}
	for _, m := range c.Members {
		m.flags = append([]string{
			"--name=" + m.name,
			"--data-dir=" + m.data,
			"--listen-client-urls=http://" + m.Endpoint,
			"--advertise-client-urls=http://" + m.Endpoint,
			"--listen-peer-urls=http://" + m.peer,
			"--initial-advertise-peer-urls=http://" + m.peer,
			"--initial-cluster=" + strings.Join(initial, ","),
			"--initial-cluster-token=" + fmt.Sprint(token, attempt),
			"--initial-cluster-state=new",
			// The longest for which 1.5 elections still round up to a lease of 1 s
			// would be 660: too little more to bear a loaded machine better.
			"--heartbeat-interval=50",
			"--election-timeout=500",
			// A kill loses nothing that the kernel was given. Only a crash of the
			// machine would, which ends the test too.
			"--unsafe-no-fsync",
			"--log-level=error",
			"--log-outputs=stderr",
		}, extra...)
	}
}

// run starts all members and waits until all answer.
func (c *Cluster) run() error {
	for _, m := range c.Members {
		if err := m.spawn(); err != nil {
			return err
		}
	}
	deadline := time.Now().Add(startTimeout)
	for _, m := range c.Members {
		if err := m.started(deadline); err != nil {
			return err
		}
	}
	return nil
}

// end kills all members.
func (c *Cluster) end() {
	for _, m := range c.Members {
		m.Kill()
	}
}

// Endpoints lists the addresses, "127.0.0.1:port", of all members for clients.
func (c *Cluster) Endpoints() []string {
	var all []string
	for _, m := range c.Members {
		all = append(all, m.Endpoint)
	}
	return all
}

// URL is "etcd://127.0.0.1:p1,127.0.0.1:p2,127.0.0.1:p3/", with all members.
func (c *Cluster) URL() string { return "etcd://" + strings.Join(c.Endpoints(), ",") + "/" }
