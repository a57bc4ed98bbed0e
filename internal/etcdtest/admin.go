package etcdtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Client returns a client for the members, for all if none is given, that logs
// nothing. It connects when it is used, and again within 100 ms after a Restart.
// The end of the test closes it; do not close it.
//
// It takes one member after the other, also a paused one, which answers only
// when it goes on: leave those out.
func (c *Cluster) Client(t testing.TB, members ...*Member) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, m.Endpoint)
	}
	if len(members) == 0 {
		endpoints = c.Endpoints()
	}
	client, err := connect(endpoints...)
	if err != nil {
		t.Fatalf("etcdtest: no client for %v: %v", endpoints, err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func connect(endpoints ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: endpoints,
		Logger:    zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			// The default waits from 1 s to 2 min.
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, MaxDelay: 100 * time.Millisecond},
			MinConnectTimeout: time.Second,
		})},
	})
}

// ask has f use a client for this member alone, which is new: an old one may be
// about to reconnect.
func (m *Member) ask(patience time.Duration, f func(context.Context, *clientv3.Client) error) error {
	client, err := connect(m.Endpoint)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return f(ctx, client)
}

// status returns what this member says about itself and its leader, nil if it
// does not run or does not answer. It asks no other member.
func (m *Member) status() *clientv3.StatusResponse {
	if !m.Running() {
		return nil
	}
	var reply *clientv3.StatusResponse
	err := m.ask(time.Second, func(ctx context.Context, client *clientv3.Client) (err error) {
		reply, err = client.Status(ctx, m.Endpoint)
		return err
	})
	if err != nil {
		return nil
	}
	return reply
}

func (c *Cluster) majorityRuns() bool {
	n := 0
	for _, m := range c.Members {
		if m.Running() {
			n++
		}
	}
	return n > len(c.Members)/2
}

// leader returns the running member that is the leader in the eyes of a majority
// of all members, itself among them, and its id; nil if there is none.
func (c *Cluster) leader() (*Member, uint64) {
	type claim struct{ id, term uint64 }
	votes := map[claim]int{}
	var claimant *Member
	var claimed claim
	for _, m := range c.Members {
		s := m.status()
		if s == nil || s.Leader == 0 {
			continue
		}
		votes[claim{s.Leader, s.RaftTerm}]++
		// An old leader that has not heard of its successor is of an older term.
		if s.Leader == s.Header.MemberId && (claimant == nil || s.RaftTerm > claimed.term) {
			claimant, claimed = m, claim{s.Leader, s.RaftTerm}
		}
	}
	if votes[claimed] <= len(c.Members)/2 {
		return nil, 0
	}
	return claimant, claimed.id
}

// Leader returns the member that leads and that a majority follows. Members that
// are killed or paused are not asked. It blocks until there is one, so after the
// Kill or Pause of the leader for about 1 s, and fails the test after a minute.
func (c *Cluster) Leader() *Member {
	c.t.Helper()
	var leader *Member
	c.await("a running member leads", func() bool {
		leader, _ = c.leader()
		return leader != nil
	})
	return leader
}

// MoveLeader has the leader hand over to the next running member, in the order
// of Members, and returns that. It blocks until a majority follows it, and fails
// the test after a minute, so also if no other member runs.
func (c *Cluster) MoveLeader() *Member {
	c.t.Helper()
	var heir *Member
	c.await("another running member leads", func() bool {
		leader, _ := c.leader()
		if heir == nil && leader != nil {
			heir = c.after(leader)
		}
		if heir == nil || leader == nil || leader == heir {
			return heir != nil && leader == heir
		}
		if s := heir.status(); s != nil {
			leader.ask(2*time.Second, func(ctx context.Context, client *clientv3.Client) error {
				_, err := client.MoveLeader(ctx, s.Header.MemberId)
				return err
			}) // whatever it says, the next round sees who leads
		}
		return false
	})
	return heir
}

// after returns the running member that follows m, nil if there is none.
func (c *Cluster) after(m *Member) *Member {
	n := len(c.Members)
	for i, at := range c.Members {
		for j := 1; at == m && j < n; j++ {
			if next := c.Members[(i+j)%n]; next.Running() {
				return next
			}
		}
	}
	return nil
}

// Compact compacts at the present revision, so that no older one can be read or
// watched. It blocks until all running members have done it, and fails the test
// if that takes longer than a minute, as without a majority.
func (c *Cluster) Compact() {
	c.t.Helper()
	compacted := map[*Member]bool{}
	var first int64
	c.await("all running members have compacted", func() bool {
		for _, m := range c.Members {
			if !m.Running() || compacted[m] {
				continue
			}
			err := m.ask(2*time.Second, func(ctx context.Context, client *clientv3.Client) error {
				// Linearizable: the member has done all that was done before.
				reply, err := client.Get(ctx, "\x00", clientv3.WithCountOnly())
				if err != nil || first != 0 {
					return err
				}
				_, err = client.Compact(ctx, reply.Header.Revision)
				if err != nil && !errors.Is(err, rpctypes.ErrCompacted) { // already
					return err
				}
				first = reply.Header.Revision
				return nil
			})
			if err != nil {
				return false
			}
			compacted[m] = true
		}
		return len(compacted) > 0
	})
}

// await blocks until ok, and fails the test if that takes longer than a minute.
func (c *Cluster) await(what string, ok func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(startTimeout)
	for !ok() {
		if time.Now().After(deadline) {
			c.t.Fatalf("etcdtest: waited %v in vain until %s", startTimeout, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
