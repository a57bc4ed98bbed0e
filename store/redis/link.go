package redis

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/rueidis"
)

// links are the connections of subscriptions, one for each node. They carry nothing
// else. A subscription is never ended by SUNSUBSCRIBE: a server that is busy in a
// script answers it with an error, and rueidis panics at the second such answer. The
// subscription ends with its connection, which is closed when the last receiver leaves.
type links struct {
	client rueidis.Client

	mu    sync.Mutex
	open  map[string]*link // by node; "" if there is but one
	start string           // where first begins to look
}

type link struct {
	node   string
	once   sync.Once
	client rueidis.DedicatedClient
	dialed string // address of the node it leads to

	// Guarded by links.mu.
	users int
}

// take returns the connection to a node, which it opens if there is none. It
// blocks while the client connects. What is wrong with a connection shows when
// it is used.
func (ls *links) take(node string) *link {
	switch {
	case ls.client.Mode() == rueidis.ClientModeSentinel:
		node = ls.watched()
	case node == "":
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
	l.once.Do(func() { l.client, l.dialed = ls.dedicate(node) })
	return l
}

// put gives a connection back. The last user's put closes it. A broken connection is
// not taken again, and its node is no longer the first.
func (ls *links) put(l *link, broken bool) {
	if broken {
		ls.pass(l.dialed)
	}
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

// watched is what the sentinels say of the servers: it changes with the master. There are
// several addresses if the client reads from replicas.
func (ls *links) watched() string {
	return strings.Join(slices.Sorted(maps.Keys(ls.client.Nodes())), " ")
}

// deposed reports whether a connection may lead to a former master. Such a connection may
// stay open, but no release publishes there.
func (ls *links) deposed(l *link) bool {
	return ls.client.Mode() == rueidis.ClientModeSentinel && l.node != ls.watched()
}

// first is the address of the node that subscriptions begin at, the same one until
// that fails; "" if there is but one node, or none is known.
func (ls *links) first() string {
	addresses := ls.addresses()
	if len(addresses) == 0 {
		return ""
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return addresses[ls.index(addresses)]
}

// pass makes the node after this one the first, if this one is: many subscriptions
// that fail together pass over one node.
func (ls *links) pass(node string) {
	addresses := ls.addresses()
	if len(addresses) == 0 {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if i := ls.index(addresses); addresses[i] == node {
		ls.start = addresses[(i+1)%len(addresses)]
	}
}

// addresses are those of the nodes of a cluster, in order.
func (ls *links) addresses() []string {
	if ls.client.Mode() != rueidis.ClientModeCluster {
		return nil
	}
	return slices.Sorted(maps.Keys(ls.client.Nodes()))
}

// index is that of the first node. The one at start may be gone: then it is the next.
func (ls *links) index(addresses []string) int {
	i, _ := slices.BinarySearch(addresses, ls.start)
	return i % len(addresses)
}

// dedicate opens a connection. In a cluster it is one to a single node, because
// the client's own would serve one slot only and panics at the next one. Instead
// of a node that the client does not know yet it is to another, which says
// again where the slot is; nil if it knows none.
func (ls *links) dedicate(node string) (c rueidis.DedicatedClient, dialed string) {
	client := ls.client
	if client.Mode() == rueidis.ClientModeCluster {
		nodes := client.Nodes()
		if nodes[node] == nil {
			node = ls.first()
		}
		if client = nodes[node]; client == nil {
			return nil, ""
		}
	}
	c, _ = client.Dedicate()
	return c, node
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
