package redis

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/redis/rueidis"
)

// links are the connections that subscriptions are on, one for each node and for
// nothing else. A subscription is never ended by SUNSUBSCRIBE: when the server
// answers that with an error, as every server does that is busy in a script,
// rueidis takes the second of two error replies for one that nobody asked for and
// panics. It is left behind instead, and ends with the connection, which is
// closed when nobody receives on it any more.
type links struct {
	client rueidis.Client

	mu   sync.Mutex
	open map[string]*link // by address; "" if there is but one node
}

type link struct {
	node   string
	once   sync.Once
	client rueidis.DedicatedClient

	// Guarded by links.mu.
	users int
}

// take returns the connection to a node, which it opens if there is none. It
// blocks while the client connects. What is wrong with a connection shows when
// it is used.
func (ls *links) take(node string) *link {
	if node == "" {
		node = ls.first()
	}
	ls.mu.Lock()
	l := ls.open[node]
	if l == nil {
		l = &link{node: node}
		ls.open[node] = l
	}
	l.users++
	ls.mu.Unlock()
	l.once.Do(func() { l.client = ls.dedicate(node) })
	return l
}

// put gives a connection back. It is closed if nobody uses it any more; a broken
// one is not taken again.
func (ls *links) put(l *link, broken bool) {
	ls.mu.Lock()
	l.users--
	last := l.users == 0
	if (broken || last) && ls.open[l.node] == l {
		delete(ls.open, l.node)
	}
	ls.mu.Unlock()
	if last && l.client != nil {
		l.client.Close()
	}
}

// first is the address of a node of a cluster, always the same one; "" if there
// is but one node, or none is known.
func (ls *links) first() string {
	if ls.client.Mode() != rueidis.ClientModeCluster {
		return ""
	}
	addresses := slices.Sorted(maps.Keys(ls.client.Nodes()))
	if len(addresses) == 0 {
		return ""
	}
	return addresses[0]
}

// dedicate opens a connection. In a cluster it is one to a single node, because
// the client's own would serve one slot only and panics at the next one. Instead
// of a node that the client does not know yet it is to another, which says
// again where the slot is; nil if it knows none.
func (ls *links) dedicate(node string) rueidis.DedicatedClient {
	client := ls.client
	if client.Mode() == rueidis.ClientModeCluster {
		nodes := client.Nodes()
		if client = nodes[node]; client == nil {
			client = nodes[ls.first()]
		}
		if client == nil {
			return nil
		}
	}
	dedicated, _ := client.Dedicate()
	return dedicated
}

// isReply: the server has answered, so the connection is fine.
func isReply(err error) bool {
	var reply *rueidis.RedisError
	return errors.As(err, &reply)
}

var errNoNode = errors.New("redis: no node of the cluster is known")

// receive subscribes to a channel and calls f with each message until ctx, the
// subscription or the connection ends.
func (l *link) receive(ctx context.Context, channel string, f func(rueidis.PubSubMessage)) error {
	if l.client == nil {
		return errNoNode
	}
	return l.client.Receive(ctx, l.client.B().Ssubscribe().Channel(channel).Build(), f)
}

// movedTo is where a redirection points.
func movedTo(err error) (node string, ok bool) {
	var reply *rueidis.RedisError
	if !errors.As(err, &reply) {
		return "", false
	}
	return reply.IsMoved()
}
