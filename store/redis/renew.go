package redis

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/store"
)

// batch is how many holds one script call renews at most: enough that the cost
// of a call is shared, few enough that others wait well under a millisecond.
const batch = 128

// Renew implements [store.Store]. Holds travel together, up to 128 in a script
// call, in a cluster those of one partition, and all calls at once; with MinReplicas
// up to 64, in a cluster one of each partition. It blocks until all are answered or ctx
// ends, and works when the server's memory is full.
func (s *Store) Renew(ctx context.Context, holds []store.Ref) []error {
	results := make([]error, len(holds))
	if err := s.ready(ctx); err != nil {
		for i := range results {
			results[i] = err
		}
		return results
	}
	batches := s.batches(holds)
	if s.replicas > 0 {
		s.renewConfirmed(ctx, batches, holds, results)
		return results
	}
	calls := make([]rueidis.Completed, len(batches))
	for i, b := range batches {
		calls[i] = s.scripts.renew.bySHA(s.client, b.keys, b.args)
	}
	var again sync.WaitGroup
	for i, answer := range s.client.DoMulti(ctx, calls...) {
		b := batches[i]
		reply, err := answer.ToMessage()
		if err == nil {
			s.settle(ctx, b, holds, reply, nil, results)
			continue
		}
		again.Go(func() { // for itself: the others need not wait for a node that is not ready
			if replyIs(err, "NOSCRIPT") {
				reply, err = s.client.Do(ctx, s.scripts.renew.byText(s.client, b.keys, b.args)).ToMessage()
			}
			s.settle(ctx, b, holds, reply, err, results)
		})
	}
	again.Wait()
	return results
}

// renewConfirmed sends batches that replicas have to confirm, in one lane for each
// partition. A connection for each batch would be too many; and if any batch could
// have any connection, those of a shard that does not answer would take them all.
func (s *Store) renewConfirmed(ctx context.Context, batches []*renewal, holds []store.Ref, results []error) {
	var lanes [partitions][]*renewal
	for _, b := range batches {
		lanes[b.lane] = append(lanes[b.lane], b)
	}
	var sent sync.WaitGroup
	for _, lane := range lanes {
		if len(lane) == 0 {
			continue
		}
		sent.Go(func() {
			for _, b := range lane {
				reply, missing, err := s.sendConfirmed(ctx, s.scripts.renew, b.keys, b.args)
				s.settle(ctx, b, holds, reply, errors.Join(err, missing), results)
			}
		})
	}
	sent.Wait()
}

// renewal is one call of the renew script.
type renewal struct {
	lane       int   // its partition; where there are no slots, any
	index      []int // which of the holds
	keys, args []string
}

// batches deals the holds to calls, where there are slots by their partition.
func (s *Store) batches(holds []store.Ref) []*renewal {
	slots := s.slots.Load() || s.client.Mode() == rueidis.ClientModeCluster
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
			if !slots {
				b.lane = len(all) % partitions
			}
			open[p] = b
			all = append(all, b)
		}
		b.index = append(b.index, i)
		n := s.keys.of(ref.Name)
		b.keys = append(b.keys, n.counter, n.lock, n.order)
		b.args = append(b.args, ref.ID, millis(ref.TTL))
		if len(b.index) == batch {
			open[p] = nil
		}
	}
	return all
}

// settle writes the results of one call.
func (s *Store) settle(ctx context.Context, b *renewal, holds []store.Ref, reply rueidis.RedisMessage, err error, results []error) {
	slots := replyIs(err, "CROSSSLOT")
	if slots { // a cluster that the client takes for one server
		s.slots.Store(true)
	}
	if slots || notRun(err) {
		// Keys of the batch are on two nodes, or its node is not ready: each
		// hold for itself has a better chance.
		for _, i := range b.index {
			results[i] = s.prolong(ctx, holds[i])
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
			results[i] = renewed(answers[k])
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
	reply, err := s.runKeys(ctx, s.scripts.prolong, []string{key}, []string{ref.ID, millis(ref.TTL)})
	if err != nil {
		return 0, s.outcome(err)
	}
	n, err := reply.AsInt64()
	if err != nil {
		return 0, unexpected("prolong", err)
	}
	return n, nil
}
