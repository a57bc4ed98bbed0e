package redis

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/store"
)

const (
	// batch is how many holds one script call renews at most: enough that the cost of a
	// call is shared, and few enough that it takes the server a third of a millisecond.
	batch = 128
	// lanes is how many such calls are under way at once.
	lanes = 2
	// batchInCluster is for each of the partitions, of which a server has some twenty.
	batchInCluster = 16
)

// Renew implements [store.Store]. Holds travel together, up to 128 in a script call,
// and two calls at once; in a cluster up to 16 of one partition, and one call of each
// partition at once. With MinReplicas 64 calls travel at once. It blocks until all are
// answered or ctx ends, and works when the server's memory is full.
func (s *Store) Renew(ctx context.Context, holds []store.Ref) []error {
	results := make([]error, len(holds))
	if err := s.ready(ctx); err != nil {
		for i := range results {
			results[i] = err
		}
		return results
	}
	var sent sync.WaitGroup
	for _, lane := range s.lanes(s.batches(holds)) {
		sent.Go(func() {
			for _, b := range lane {
				s.renewBatch(ctx, b, holds, results)
			}
		})
	}
	sent.Wait()
	return results
}

// lanes are batches that are sent one after the other, beside other lanes. So the
// server is never busy with more than a few batches of renewals when a lock is asked for.
// In a cluster there is a lane for each partition: if any batch could wait for any
// other, those of a shard that does not answer would keep all from being sent.
func (s *Store) lanes(batches []*renewal) (lanes [][]*renewal) {
	var of [partitions][]*renewal
	for _, b := range batches {
		of[b.lane] = append(of[b.lane], b)
	}
	for _, lane := range of {
		if len(lane) > 0 {
			lanes = append(lanes, lane)
		}
	}
	return lanes
}

func (s *Store) renewBatch(ctx context.Context, b *renewal, holds []store.Ref, results []error) {
	if s.replicas > 0 {
		reply, missing, err := s.sendConfirmed(ctx, s.scripts.renew, b.keys, b.args)
		s.settle(ctx, b, holds, reply, missing, err, results)
		return
	}
	reply, err := s.call(ctx, s.scripts.renew, s.keys.of(holds[b.index[0]].Name), b.keys, b.args)
	s.settle(ctx, b, holds, reply, nil, err, results)
}

// renewal is one call of the renew script.
type renewal struct {
	lane       int   // its partition; where there are no slots, any
	index      []int // which of the holds
	keys, args []string
}

// batches deals the holds to calls, where there are slots by their partition.
func (s *Store) batches(holds []store.Ref) []*renewal {
	slots := s.cluster.Load() || s.client.Mode() == rueidis.ClientModeCluster
	most := batch
	if slots {
		most = batchInCluster
	}
	var all []*renewal
	var open [partitions]*renewal
	for i, ref := range holds {
		p := 0
		if slots {
			p = partition(ref.Name)
		}
		b := open[p]
		if b == nil {
			b = &renewal{lane: p}
			switch {
			case !slots && s.replicas > 0:
				b.lane = len(all) % partitions
			case !slots:
				b.lane = len(all) % lanes
			}
			open[p] = b
			all = append(all, b)
		}
		b.index = append(b.index, i)
		n := s.keys.of(ref.Name)
		b.keys = append(b.keys, n.counter, n.lock, n.order)
		b.args = append(b.args, ref.ID, millis(ref.TTL))
		if len(b.index) == most {
			open[p] = nil
		}
	}
	return all
}

// settle writes the results of one call. A loss is certain whatever replicas have; only a renewal
// needs them.
func (s *Store) settle(ctx context.Context, b *renewal, holds []store.Ref, reply rueidis.RedisMessage, missing, err error, results []error) {
	slots := replyIs(err, "CROSSSLOT")
	if slots { // a cluster that the client takes for one server
		s.cluster.Store(true)
	}
	if slots || notRun(err) {
		// Keys of the batch are on two nodes, or its node is not ready: each
		// hold for itself has a better chance. At once, as one of the nodes may hang.
		var calls sync.WaitGroup
		for _, i := range b.index {
			calls.Go(func() {
				results[i] = s.prolong(ctx, holds[i])
				// While a slot moves that is the only way. Otherwise the next renewal is confirmed again: its node is
				// ready then, or known.
				if results[i] == nil && s.replicas > 0 && !replyIs(err, "TRYAGAIN", "ASK") {
					results[i] = fmt.Errorf("%w: %w", ErrTooFewReplicas, err)
				}
			})
		}
		calls.Wait()
		return
	}
	if replyIs(err, "NOPERM") && len(b.index) > 1 {
		// The user may lack the right to the keys of one name alone.
		for k, i := range b.index {
			s.renewBatch(ctx, &renewal{index: []int{i}, keys: b.keys[3*k : 3*k+3], args: b.args[2*k : 2*k+2]}, holds, results)
		}
		return
	}
	answers, wrong := reply.ToArray()
	for k, i := range b.index {
		switch {
		case err != nil:
			results[i] = s.outcome(err)
		case wrong != nil || len(answers) != len(b.index):
			results[i] = unexpected("renew", wrong)
		default:
			if results[i] = renewed(answers[k]); results[i] == nil {
				results[i] = s.outcome(missing)
			}
		}
	}
}

// renewed reads one answer of the renew script.
func renewed(answer rueidis.RedisMessage) error {
	if answer.IsString() {
		text, _ := answer.ToString()
		return outcomeText(text)
	}
	switch n, err := answer.AsInt64(); {
	case err != nil:
		return unexpected("renew", err)
	case n == 0:
		return store.ErrLost
	}
	return nil
}

// prolong renews a hold key by key, while its slot moves to another node and
// no script may touch two of its keys: a key is on the one node or on the
// other, and a call for it alone finds it. No replica is waited for.
func (s *Store) prolong(ctx context.Context, ref store.Ref) error {
	n := s.keys.of(ref.Name)
	for again := false; ; again = true {
		result, err := s.prolongBy(ctx, n.lock, ref)
		if err == nil && result == prolongOrder {
			result, err = s.prolongBy(ctx, n.order, ref)
			if err == nil && result == prolongLost && !again {
				continue // others may have gone meanwhile, and what is left may need no order
			}
		}
		switch {
		case err != nil:
			return err
		case result == prolongLost:
			return store.ErrLost
		case result == prolongDone:
			return nil
		}
		return unexpected("prolong", nil)
	}
}

// What the prolong script returns.
const (
	prolongLost = iota
	prolongDone
	prolongOrder
)

func (s *Store) prolongBy(ctx context.Context, key string, ref store.Ref) (int64, error) {
	reply, err := s.runKeys(ctx, s.scripts.prolong, s.keys.of(ref.Name), []string{key}, []string{ref.ID, millis(ref.TTL)})
	if err != nil {
		return 0, s.outcome(err)
	}
	n, err := reply.AsInt64()
	if err != nil {
		return 0, unexpected("prolong", err)
	}
	return n, nil
}
