// Package zookeepertest starts ZooKeeper servers for tests, one alone or an
// ensemble: on free ports of 127.0.0.1, with their data in temporary folders. They
// end with the test, or with the test program if that is killed.
package zookeepertest

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/porttest"
	"github.com/dlock-go/dlock/internal/process"
)

// startTimeout is how long servers may take to start and to elect a leader.
const startTimeout = 60 * time.Second

// Debian installs ZooKeeper there, and no program that starts it in the foreground.
const jar = "/usr/share/java/zookeeper.jar"

// Ensemble is one server or more that belong together.
type Ensemble struct {
	Members []*Member
	t       testing.TB
}

// Member is one server.
type Member struct {
	Addr string // "127.0.0.1:port" for clients

	e       *Ensemble
	dir     string
	running *process.Process
}

// Start starts n servers and blocks until each serves clients. It fails the test
// if they do not, or if no server is installed.
func Start(t testing.TB, n int) *Ensemble {
	t.Helper()
	e := &Ensemble{t: t}
	for range n {
		e.Members = append(e.Members, &Member{e: e, dir: t.TempDir()})
	}
	// Another program may bind a port before the server does. Then the server ends.
	for attempt := 1; !e.start(); attempt++ {
		if attempt == 5 {
			t.Fatal("zookeepertest: a server ended while it started, five times, each with other ports")
		}
	}
	return e
}

// start starts the servers on free ports and blocks until each serves clients. It returns false if one has ended.
func (e *Ensemble) start() bool {
	e.t.Helper()
	addrs := porttest.FreeAddrs(e.t, 3*len(e.Members))
	var servers strings.Builder
	for i, m := range e.Members {
		m.Addr = addrs[3*i]
		if len(e.Members) > 1 {
			fmt.Fprintf(&servers, "server.%d=%s:%s\n", i+1, addrs[3*i+1], porttest.Port(addrs[3*i+2]))
		}
	}
	for i, m := range e.Members {
		m.configure(i+1, servers.String())
		m.launch()
		e.t.Cleanup(m.Kill)
	}
	for _, m := range e.Members {
		if !m.serves() {
			e.t.Logf("zookeepertest: the server at %s ended: %s", m.Addr, m.running.Cmd.Stderr)
			for _, m := range e.Members {
				m.Kill()
			}
			return false
		}
	}
	return true
}

// configure writes the files that a server starts with. An election that comes to nothing,
// because one member still takes a dead leader for alive, ends after initLimit ticks.
func (m *Member) configure(id int, servers string) {
	config := fmt.Sprintf(`tickTime=250
initLimit=24
syncLimit=8
dataDir=%s
clientPort=%s
clientPortAddress=127.0.0.1
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr,conf,wchs
`, m.data(), porttest.Port(m.Addr)) + servers
	err := os.MkdirAll(m.data(), 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(m.data(), "myid"), fmt.Appendf(nil, "%d\n", id), 0o600)
	}
	if err == nil {
		err = os.WriteFile(m.config(), []byte(config), 0o600)
	}
	if err != nil {
		m.e.t.Fatalf("zookeepertest: cannot write the configuration: %v", err)
	}
}

func (m *Member) data() string   { return filepath.Join(m.dir, "data") }
func (m *Member) config() string { return filepath.Join(m.dir, "zoo.cfg") }

// launch starts the server and does not wait for it.
func (m *Member) launch() {
	m.e.t.Helper()
	java, err := exec.LookPath("java")
	if err != nil {
		m.e.t.Fatal("zookeepertest: no java in the PATH: install default-jre-headless, or run `make servers`, which does")
	}
	if _, err := os.Stat(jar); err != nil {
		m.e.t.Fatalf("zookeepertest: no %s: install Debian's package zookeeper, or run `make servers`, which does", jar)
	}
	cmd := exec.Command(java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Dzookeeper.forceSync=no", // the machine does not fail during a test
		"-cp", jar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", m.config())
	cmd.Dir, cmd.Stderr = m.dir, new(strings.Builder)
	if m.running, err = process.Start(cmd); err != nil {
		m.e.t.Fatalf("zookeepertest: cannot start the server: %v", err)
	}
}

// AwaitServing blocks until the server serves clients: alone, or as a member of a
// majority with a leader.
func (m *Member) AwaitServing() {
	m.e.t.Helper()
	if !m.serves() {
		m.e.t.Fatalf("zookeepertest: the server ended: %s", m.running.Cmd.Stderr)
	}
}

// serves blocks until the server serves clients. It returns false if the server has ended.
func (m *Member) serves() bool {
	m.e.t.Helper()
	await(m.e.t, "the server at "+m.Addr+" serves", func() bool {
		return m.running.Ended() || m.mode() != "" && m.hasItsPort()
	})
	return !m.running.Ended()
}

// hasItsPort reports whether this server answers at its address, and not another that has the port.
func (m *Member) hasItsPort() bool { return strings.HasPrefix(m.says("conf", "dataDir="), m.data()) }

// mode is "standalone", "leader" or "follower", or "" if the server does not
// serve.
func (m *Member) mode() string { return m.says("srvr", "Mode: ") }

// Version is that of the server's program.
func (m *Member) Version() string {
	version, _, _ := strings.Cut(m.says("srvr", "Zookeeper version: "), "-")
	return version
}

// Received is how many packets clients have sent to this server.
func (m *Member) Received() (int, error) { return strconv.Atoi(m.says("srvr", "Received: ")) }

// Watches is how many watches clients of this server have.
func (m *Member) Watches() int {
	n, _ := strconv.Atoi(m.says("wchs", "Total watches:"))
	return n
}

// says is the rest of the line behind a text in the answer to a command of four
// letters, or "".
func (m *Member) says(command, text string) string {
	c, err := net.DialTimeout("tcp", m.Addr, time.Second)
	if err != nil {
		return ""
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	io.WriteString(c, command)
	answer, _ := io.ReadAll(c)
	_, line, _ := strings.Cut(string(answer), text)
	line, _, _ = strings.Cut(line, "\n")
	return line
}

// Leader is the member that leads; a server alone leads itself.
func (e *Ensemble) Leader() (leader *Member) {
	e.t.Helper()
	await(e.t, "the ensemble has a leader", func() bool {
		for _, m := range e.Members {
			if mode := m.mode(); mode == "leader" || mode == "standalone" {
				leader = m
				return true
			}
		}
		return false
	})
	return leader
}

// Follower is a member that does not lead.
func (e *Ensemble) Follower() *Member {
	e.t.Helper()
	leader := e.Leader()
	for _, m := range e.Members {
		if m != leader {
			return m
		}
	}
	e.t.Fatal("zookeepertest: a server alone has no follower")
	return nil
}

// URL is that of the locks below /dlock, or below root.
func (e *Ensemble) URL(root ...string) string {
	var hosts []string
	for _, m := range e.Members {
		hosts = append(hosts, m.Addr)
	}
	return "zk://" + strings.Join(hosts, ",") + strings.Join(root, "")
}

// Kill ends the server at once, as a crash does.
func (m *Member) Kill() { m.running.Kill() }

// Launch starts a server again that was killed, and waits until it serves.
func (m *Member) Launch() {
	m.e.t.Helper()
	m.launch()
	m.AwaitServing()
}

// Wipe deletes the data of a server that was killed.
func (m *Member) Wipe() {
	m.e.t.Helper()
	if err := os.RemoveAll(filepath.Join(m.data(), "version-2")); err != nil {
		m.e.t.Fatalf("zookeepertest: cannot delete the data: %v", err)
	}
}

// Pause stops the server with SIGSTOP and waits until it stands still.
func (m *Member) Pause() {
	m.e.t.Helper()
	if err := m.running.Pause(); err != nil {
		m.e.t.Fatalf("zookeepertest: cannot stop the server: %v", err)
	}
	await(m.e.t, "the server stands still", func() bool { return !m.running.Runs() })
}

// Resume lets a paused server go on.
func (m *Member) Resume() { m.running.Resume() }

// await blocks until ok, and fails the test if that takes too long.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(startTimeout); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("zookeepertest: not true after %v: %s", startTimeout, what)
		}
	}
}
