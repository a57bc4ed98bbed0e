package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/quorum"
)

// Node is a store whose server may be down when it is opened, as nodes of a quorum may.
type Node = quorum.Redialer

// OpenNode returns a handle on the server of a URL as [Open] takes it, at once and
// whether or not the server can be reached. An error says what is wrong with the URL.
// For a server of a quorum that has options: quorum.NewWithOptions takes nodes.
func OpenNode(rawURL string) (*Node, error) {
	if _, _, err := checkURL(rawURL); err != nil {
		return nil, err
	}
	return quorum.Redial(func() (quorum.Dialed, error) {
		s, err := Open(rawURL)
		if err != nil {
			return nil, err
		}
		return s, nil
	}, minTTL), nil
}

// OpenQuorum returns a quorum over several independent Redis masters, each given
// by a URL as [Open] takes it: three or more, an odd number. It blocks until all
// are connected, or a majority and a second has passed; the others are connected
// to as soon as they can be reached. With no majority it fails, after as long as
// [Open] takes at most, with the errors of all. It fails too if two URLs lead to one
// server, also by different databases: then its failure would take several votes. And it
// fails if one leads to a cluster, which does not say that it has lost locks.
//
// Its Close closes the connections. For other options than the default ones give
// quorum.NewWithOptions what [OpenNode] returns.
//
// The user of each server needs the right to INFO, by which a restart is noticed.
func OpenQuorum(urls ...string) (*quorum.Store, error) {
	nodes := make([]*Node, 0, len(urls))
	stores := make([]store.Store, 0, len(urls))
	closeAll := func() {
		for _, n := range nodes {
			n.Close()
		}
	}
	for i, url := range urls {
		n, err := OpenNode(url)
		if err != nil {
			closeAll()
			return nil, fmt.Errorf("node %d: %w", i, err)
		}
		nodes, stores = append(nodes, n), append(stores, n)
	}
	if err := quorum.AwaitMajority(nodes); err != nil {
		closeAll()
		return nil, fmt.Errorf("redis: %w", err)
	}
	if err := distinct(nodes); err != nil {
		closeAll()
		return nil, err
	}
	q, err := quorum.NewWithOptions(&quorum.Options{Own: true}, stores...)
	if err != nil {
		closeAll()
	}
	return q, err
}

// distinct checks that no two of the nodes that are connected are one server, and none is a cluster.
func distinct(nodes []*Node) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	seen := make(map[string]int)
	for i, n := range nodes {
		id, _, err := n.Incarnation(ctx)
		if errors.Is(err, errCluster) {
			return fmt.Errorf("node %d: %w", i, err)
		}
		if err != nil {
			continue // not connected; or no right to INFO, which is met again later
		}
		id, _, _ = strings.Cut(id, "/") // the server, see store.Incarnator
		if first, again := seen[id]; again {
			return fmt.Errorf("redis: nodes %d and %d are one server: a quorum needs servers that fail independently, so give each once", first, i)
		}
		seen[id] = i
	}
	return nil
}
