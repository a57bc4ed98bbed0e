package etcdtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/internal/process"
)

// errAddressInUse says that somebody else has bound a port of a member.
var errAddressInUse = errors.New("a port of the etcd server is in use")

const startTimeout = time.Minute

// spawn starts the server and does not wait for anything.
func (m *Member) spawn() error {
	log, err := os.OpenFile(m.log(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("the etcd server gets no log: %w", err)
	}
	defer log.Close()
	old, err := log.Stat()
	if err != nil {
		return err
	}
	cmd := exec.Command(m.program, m.flags...)
	cmd.Dir = m.dir
	// Each flag has a variable that would set it too.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "ETCD_") && !strings.HasPrefix(v, "ETCD_UNSUPPORTED_ARCH=")
	})
	cmd.Stdout, cmd.Stderr = log, log
	p, err := process.Start(cmd)
	if err != nil {
		return fmt.Errorf("the etcd server does not start: %w", err)
	}
	m.mu.Lock()
	m.proc, m.paused, m.logged = p, false, old.Size()
	m.mu.Unlock()
	return nil
}

// started waits until the server answers: a linearizable read if a majority
// runs, otherwise only members.
func (m *Member) started(deadline time.Time) error {
	m.mu.Lock()
	p, logged := m.proc, m.logged
	m.mu.Unlock()
	for {
		ready := m.known
		if m.c.majorityRuns() {
			ready = m.answers
		}
		if ready() {
			return nil
		}
		text, _ := os.ReadFile(m.log())
		text = text[min(int(logged), len(text)):]
		select {
		case <-p.Done:
			if bytes.Contains(text, []byte("address already in use")) {
				return errAddressInUse
			}
			return fmt.Errorf("the etcd server ended as it started, its log ends with\n%s", tail(text))
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the etcd server at %s does not answer after %v, its log ends with\n%s", m.Endpoint, startTimeout, tail(text))
		}
	}
}

// answers reports whether this member answers a linearizable read. It asks for
// the members, for another server may have the port that this one could not get.
func (m *Member) answers() bool {
	yes := false
	err := m.ask(time.Second, func(ctx context.Context, client *clientv3.Client) error {
		list, err := client.MemberList(ctx) // linearizable
		if err != nil {
			return err
		}
		for _, other := range list.Members {
			yes = yes || other.Name == m.name
		}
		return nil
	})
	// With authentication it tells those alone whom it knows.
	return err == nil && yes || errors.Is(err, rpctypes.ErrUserEmpty)
}

// known reports whether this member tells other members about itself, which it
// does without a leader.
func (m *Member) known() bool {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Get("http://" + m.peer + "/members")
	if err != nil {
		return false
	}
	defer reply.Body.Close()
	var members []struct {
		Name string `json:"name"`
	}
	if json.NewDecoder(reply.Body).Decode(&members) != nil {
		return false
	}
	for _, other := range members {
		if other.Name == m.name {
			return true
		}
	}
	return false
}

// tail is the end of a log. After the fault in a flag come 30 lines of usage.
func tail(text []byte) string {
	text, _, _ = bytes.Cut(text, []byte("\nUsage:\n"))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

func (m *Member) log() string { return filepath.Join(m.dir, "etcd.log") }

// Log is the path of what the server has logged, which goes with the test.
func (m *Member) Log() string { return m.log() }
