package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/redis/rueidis"
)

// masters are the nodes that have keys: all masters of a cluster, else the one.
func (s *Store) masters(ctx context.Context) ([]rueidis.Client, error) {
	if s.client.Mode() != rueidis.ClientModeCluster {
		return []rueidis.Client{s.client}, nil
	}
	addresses, err := s.masterAddresses(ctx)
	if err != nil {
		return nil, err
	}
	nodes := s.client.Nodes()
	unknown := func(address string) bool { return nodes[address] == nil }
	if slices.ContainsFunc(addresses, unknown) {
		s.beRedirected(ctx)
		nodes = s.client.Nodes()
	}
	var masters []rueidis.Client
	for _, address := range addresses {
		if unknown(address) {
			return nil, fmt.Errorf("the client does not know the master %s", address)
		}
		masters = append(masters, nodes[address])
	}
	return masters, nil
}

// masterAddresses asks the nodes one after the other, until one answers. A node is not asked
// for its own role: the client does not notice that a replica has died.
func (s *Store) masterAddresses(ctx context.Context) (addresses []string, err error) {
	err = errNoNode
	for address, node := range s.client.Nodes() {
		addresses, err = mastersOf(askNode(ctx, node, node.B().ClusterSlots().Build()), address)
		if err == nil {
			break
		}
	}
	return addresses, err
}

var errSlots = errors.New("unexpected reply to CLUSTER SLOTS")

// mastersOf reads a reply to CLUSTER SLOTS: for each range of slots its ends and its nodes, of which
// the master is the first. A node without a host has that of the node that was asked.
func mastersOf(reply rueidis.RedisResult, asked string) (addresses []string, err error) {
	ranges, err := reply.ToArray()
	if err != nil {
		return nil, err
	}
	for _, r := range ranges {
		parts, _ := r.ToArray()
		if len(parts) < 3 {
			return nil, errSlots
		}
		master, _ := parts[2].ToArray()
		if len(master) < 2 {
			return nil, errSlots
		}
		host, _ := master[0].ToString()
		if host == "" {
			host, _, _ = net.SplitHostPort(asked)
		}
		port, err := master[1].AsInt64()
		if err != nil {
			return nil, errSlots
		}
		addresses = append(addresses, net.JoinHostPort(host, strconv.FormatInt(port, 10)))
	}
	if len(addresses) == 0 {
		return nil, errSlots // a node that was taken out of the cluster knows no slots
	}
	slices.Sort(addresses)
	return slices.Compact(addresses), nil
}

// beRedirected asks for a key of each partition. A master that joined the cluster later becomes
// known to the client when a call is redirected to it.
func (s *Store) beRedirected(ctx context.Context) {
	probes := make(rueidis.Commands, partitions)
	for p := range probes {
		probes[p] = s.combiners[p].look()
	}
	_, _ = apart(ctx, func() []rueidis.RedisResult { return s.client.DoMulti(ctx, probes...) })
}
