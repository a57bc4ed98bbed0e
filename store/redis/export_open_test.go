package redis

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/store"
)

// KeysOf are the keys of a name: the counter of its partition, its lock, and
// what else the format has.
func KeysOf(name string) []string {
	n := newLayout("dlock").of(name)
	return []string{n.counter, n.lock, n.order}
}

// scriptsByLimit are the scripts for each limit of the listed form, made once: to make
// them takes longer than most tests.
var scriptsByLimit sync.Map

// OpenListed is Open with another limit of the listed form.
func OpenListed(url string, listed int) (*Store, error) {
	s, err := Open(url)
	if err == nil {
		made, ok := scriptsByLimit.Load(listed)
		if !ok {
			made, _ = scriptsByLimit.LoadOrStore(listed, newScripts(listed))
		}
		s.scripts = made.(*scripts)
	}
	return s, err
}

// Partition is the partition of a name.
func Partition(name string) int { return partition(name) }

// ParseURL is what Open makes of a URL before it connects.
func ParseURL(raw string) (*rueidis.ClientOption, *Options, error) { return parseURL(raw) }

// Prolong is how a hold is renewed while its slot moves.
func Prolong(ctx context.Context, s *Store, ref store.Ref) error { return s.prolong(ctx, ref) }

// TrySubscribe subscribes to a channel of a name and ends that.
func TrySubscribe(ctx context.Context, s *Store, name string) error {
	k := &checkup{s: s, ctx: ctx}
	return k.subscribe(name)
}

// TryChannels subscribes to a channel of a name, ends that, and sends to one.
func TryChannels(ctx context.Context, s *Store, name string) error {
	k := &checkup{s: s, ctx: ctx}
	return errors.Join(k.subscribe(name), k.publish(name))
}

// Hints is how many requests s keeps in mind, because their grants may be pushed.
func Hints(s *Store) int {
	s.queuedHere.mu.Lock()
	defer s.queuedHere.mu.Unlock()
	return len(s.queuedHere.waiting)
}

// Calls is how many slots are in use at a server that is no cluster, and how many calls wait for one.
func Calls(s *Store) (used, waiting int) {
	c := &s.combiners[0]
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used, len(c.waiting)
}

// PartitionSlots are the slots of the partitions.
func PartitionSlots() (slots []int) {
	for _, start := range newLayout("dlock").start {
		slots = append(slots, Slot(start))
	}
	return slots
}

// Failures is how many ids s keeps in mind, because their requests have failed.
func Failures(s *Store) int { return int(s.failed.number.Load()) }
