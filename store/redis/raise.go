package redis

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/store"
)

// RaiseToken implements [store.TokenRaiser]. It takes one round trip, blocks as
// Acquire does, and works when the server's memory is full.
func (s *Store) RaiseToken(ctx context.Context, ref store.Ref, token uint64, tokens int) (uint64, error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	args := []string{ref.ID, strconv.FormatUint(token, 10), strconv.Itoa(tokens)}
	reply, err := s.run(ctx, s.scripts.raise, s.keys.of(ref.Name), args)
	if err != nil {
		return 0, s.outcome(err)
	}
	switch raised, err := reply.AsInt64(); {
	case err != nil:
		return 0, unexpected("raise", err)
	case raised == 0:
		return 0, store.ErrLost
	default:
		return uint64(raised), nil
	}
}

// Incarnation implements [store.Incarnator]: the run id of the master, of a
// cluster those of all masters, and for how many seconds the youngest of them
// has been up, by its wall clock. A failover changes it too, for the new master
// may lack what the old one had granted; since when it is the master it does not
// say, so the age of one that ever was a replica is 0. It takes one round trip, two if the
// masters of a cluster have to be found, and needs the right to INFO, in a
// cluster also to ROLE.
func (s *Store) Incarnation(ctx context.Context) (id string, age time.Duration, err error) {
	if err := s.ready(ctx); err != nil {
		return "", 0, err
	}
	nodes, err := s.masters(ctx)
	if err != nil {
		return "", 0, s.outcome(err)
	}
	var ids []string
	for i, node := range nodes {
		run, up, err := lifeOf(ctx, node)
		if err != nil {
			return "", 0, s.outcome(err)
		}
		if ids = append(ids, run); i == 0 || up < age {
			age = up
		}
	}
	if len(ids) == 0 {
		return "", 0, errNoNode
	}
	slices.Sort(ids)
	return strings.Join(ids, " "), age, nil
}

// lifeOf asks a server for its life and for how long it has been up at least: the
// seconds that it says are those between two times without their fractions. The life
// changes with the process and, by the id of what it replicates, when a replica is
// promoted: a master may go and come again as what it was, with less in it.
func lifeOf(ctx context.Context, node rueidis.Client) (run string, up time.Duration, err error) {
	text, err := node.Do(ctx, node.B().Info().Section("server", "replication").Build()).ToString()
	if err != nil {
		return "", 0, err
	}
	in := infoOf(text)
	seconds, err := strconv.ParseInt(in["uptime_in_seconds"], 10, 40)
	if err != nil || in["run_id"] == "" || in["master_replid"] == "" {
		return "", 0, errors.New("redis: the server says no run id, replication id and uptime")
	}
	if strings.Trim(in["master_replid2"], "0") != "" {
		seconds = 0
	}
	return in["run_id"] + ":" + in["master_replid"], max(0, time.Duration(seconds-1)*time.Second), nil
}
