package etcdtest

import (
	"errors"
	"os"
	"time"

	"github.com/dlock-go/dlock/internal/process"
)

// Pid is the process id of the server, or of its last run if it was killed.
func (m *Member) Pid() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.proc.Cmd.Process.Pid
}

// Running reports whether the server was started and neither killed nor paused
// since. It may be called concurrently.
func (m *Member) Running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.proc == nil || m.paused {
		return false
	}
	return !m.proc.Ended()
}

// Kill ends the server with SIGKILL and blocks until the process is gone. It
// does nothing if the server does not run, and may be called concurrently.
func (m *Member) Kill() {
	m.mu.Lock()
	p := m.proc
	m.mu.Unlock()
	if p == nil {
		return
	}
	p.Kill()
}

// Restart kills the server if it runs, starts it with the same ports and data,
// and blocks until it answers a linearizable read. If no majority of the members
// runs even then it only blocks until the server waits for the others.
func (m *Member) Restart() {
	m.t.Helper()
	m.Kill()
	m.start()
}

// RestartEmpty is Restart, but the data is lost: the server begins anew at
// revision 1. It is for the only member of a cluster.
func (m *Member) RestartEmpty() {
	m.t.Helper()
	m.Kill()
	if err := os.RemoveAll(m.data); err != nil {
		m.t.Fatalf("etcdtest: cannot lose the data: %v", err)
	}
	m.start()
}

func (m *Member) start() {
	m.t.Helper()
	deadline := time.Now().Add(startTimeout)
	for {
		err := m.spawn()
		if err == nil {
			err = m.started(deadline)
		}
		if err == nil {
			return
		}
		// Nobody is told the ports, but an outgoing connection may have got one.
		if !errors.Is(err, errAddressInUse) || time.Now().After(deadline) {
			m.t.Fatalf("etcdtest: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Pause stops the server with SIGSTOP: connections stay open, nothing is
// answered. It does nothing if the server does not run, blocks until all threads
// of the server have stopped, and may be called concurrently.
func (m *Member) Pause() {
	m.t.Helper()
	p := m.signal(true)
	if p == nil {
		return
	}
	// The signal arrives a little later, until which the server could still take a
	// part in a majority.
	deadline := time.Now().Add(startTimeout)
	for !m.Running() && p.Runs() {
		if time.Now().After(deadline) {
			m.t.Errorf("etcdtest: the etcd server at %s runs %v after SIGSTOP", m.Endpoint, startTimeout)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Resume lets a paused server go on, which takes a moment to learn what it has
// missed. It does nothing for one that is not paused, and may be called
// concurrently.
func (m *Member) Resume() {
	m.t.Helper()
	m.signal(false)
}

// signal returns the process if there is one.
func (m *Member) signal(pause bool) *process.Process {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.proc == nil {
		return nil
	}
	change := m.proc.Resume
	if pause {
		change = m.proc.Pause
	}
	if err := change(); err != nil {
		m.t.Errorf("etcdtest: cannot pause or resume the etcd server: %v", err)
		return nil
	}
	m.paused = pause
	return m.proc
}

// Save keeps a copy of what the cluster knows now, as a snapshot would. It stops all
// members for that and starts them again. GoBack puts that copy in the place of the data,
// as a restore of the snapshot does: revisions fall, and the keys and leases of the copy
// are there again.
func (c *Cluster) Save() {
	c.stopped(func(m *Member) error { return os.CopyFS(m.data+".saved", os.DirFS(m.data)) })
}

// GoBack restores what Save has kept; see there.
func (c *Cluster) GoBack() {
	c.stopped(func(m *Member) error {
		if err := os.RemoveAll(m.data); err != nil {
			return err
		}
		return os.CopyFS(m.data, os.DirFS(m.data+".saved"))
	})
}

// stopped calls f for each member while none of them runs.
func (c *Cluster) stopped(f func(*Member) error) {
	c.t.Helper()
	for _, m := range c.Members {
		m.Kill()
	}
	for _, m := range c.Members {
		if err := f(m); err != nil {
			c.t.Fatalf("etcdtest: cannot copy the data of the etcd server at %s: %v", m.Endpoint, err)
		}
	}
	for _, m := range c.Members {
		if err := m.spawn(); err != nil {
			c.t.Fatalf("etcdtest: %v", err)
		}
	}
	deadline := time.Now().Add(startTimeout)
	for _, m := range c.Members {
		if err := m.started(deadline); errors.Is(err, errAddressInUse) {
			m.start()
		} else if err != nil {
			c.t.Fatalf("etcdtest: %v", err)
		}
	}
}
