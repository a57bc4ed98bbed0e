// Package redis is a dlock store on Redis 7.0 or newer, or Valkey: standalone,
// behind Sentinel, or a Cluster. An operation is one Lua script (scripts/*.lua) or
// one command, and so one round trip; a release of a name that others use may take two.
// scripts/name.lua has the rules of the lock model.
// Waiters are woken by sharded pub/sub.
//
// Redis keeps locks well as long as it keeps its data. A failover may lose locks, and a
// clock that jumps ends leases early. Then only fencing tokens protect. They follow the
// server's clock in microseconds, so they grow on when data was lost. docs/redis.md is
// for operators.
package redis

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/store"
)

// minTTL leaves a claim room beside the core's safety margin (1 % + 2 ms). Redis
// counts whole milliseconds.
const minTTL = 10 * time.Millisecond

// maxPrefixLen keeps keys short.
const maxPrefixLen = 64

// Options of a store. The zero of each field means the default that its comment
// states.
type Options struct {
	// Prefix begins all keys and channels. Clients share locks only under the
	// same prefix. At most 64 printable ASCII characters without spaces and
	// braces; "" means "dlock".
	Prefix string

	// MinReplicas is how many replicas must have confirmed a grant or a renewal
	// before it counts. While a slot of a cluster moves, renewals of its locks count
	// without. It narrows what a failover can lose and costs each call
	// a WAIT on a connection of its own. It does not close the gap: a replica
	// that did not confirm may be the one that is promoted. 0: none, and then
	// no WAIT is sent.
	MinReplicas int

	// ReplicaTimeout bounds each such wait. 0 means 1 s. It must be well below
	// the TTLs in use, and is rounded up to whole milliseconds.
	ReplicaTimeout time.Duration
}

// Store is one handle on the locks of a server and prefix. It is safe for
// concurrent use.
type Store struct {
	client  rueidis.Client
	owned   bool // Close closes the client
	keys    *layout
	scripts *scripts
	id      string // names this handle's channels
	texts   *texts

	replicas    int
	replicaWait time.Duration
	queuedHere  *queuedHere
	cluster     atomic.Bool // keys of several partitions were too many for one call

	combiners *[partitions]combiner // in a cluster one for each partition, else the first is for all
	failed    *failures

	wakeups *wakeups
	life    life
	votes   atomic.Int64 // under way

	closing   chan struct{} // closed when Close begins
	closeOnce sync.Once
}

var (
	_ store.Store       = (*Store)(nil)
	_ store.Breaker     = (*Store)(nil)
	_ store.Lister      = (*Store)(nil)
	_ store.TokenRaiser = (*Store)(nil)
	_ store.Incarnator  = (*Store)(nil)
)

// New returns a handle that uses a client the caller has. Nil opts means
// defaults. An error says which option is invalid. New sends nothing; see
// [Store.Check] for what it might find.
//
// The client may have any options (cluster, sentinel, RESP2, retries, several
// connections per node), but for these:
//
//   - ConnLifetime must be 0: rueidis repeats a call whose connection reached its
//     lifetime, and a copy of a request that arrives late may be granted.
//   - With MinReplicas, AlwaysPipelining must be false: rueidis panics if a server
//     refuses commands while a pipelined connection is given back. BlockingPoolCleanup
//     must be less than the Dialer's KeepAlive, a second by default: an idle connection
//     that is pinged while it is taken becomes pipelined.
//   - BlockingPoolSize must leave room beside other uses. Of each node, the store keeps
//     one connection for wake-ups and, with MinReplicas, one for each call under way.
//
// The client stays the caller's. Close it after the store, not before.
func New(c rueidis.Client, opts *Options) (*Store, error) {
	if c == nil {
		return nil, fmt.Errorf("redis: the client is nil")
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Prefix == "" {
		o.Prefix = "dlock"
	}
	if o.ReplicaTimeout == 0 {
		o.ReplicaTimeout = time.Second
	}
	switch {
	case len(o.Prefix) > maxPrefixLen || strings.ContainsFunc(o.Prefix, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '{' || r == '}'
	}):
		return nil, fmt.Errorf("redis: Prefix %q is not up to %d printable ASCII characters without spaces and braces", o.Prefix, maxPrefixLen)
	case o.MinReplicas < 0:
		return nil, fmt.Errorf("redis: MinReplicas %d is negative", o.MinReplicas)
	case o.ReplicaTimeout < 0 || o.ReplicaTimeout > time.Hour:
		return nil, fmt.Errorf("redis: ReplicaTimeout %v is not between 0 and 1h", o.ReplicaTimeout)
	}
	s := &Store{
		client: c, keys: newLayout(o.Prefix), scripts: defaultScripts(), id: newID(),
		replicas: o.MinReplicas, replicaWait: o.ReplicaTimeout,
		queuedHere: &queuedHere{waiting: make(map[string]queued)}, closing: make(chan struct{}),
	}
	s.texts = &texts{client: s.id}
	s.failed = new(failures)
	s.combiners = new([partitions]combiner)
	s.wakeups = newWakeups(s)
	for p := range s.combiners {
		s.combiners[p] = combiner{
			client: c, ctx: s.wakeups.ctx, probe: s.keys.start[p] + "lock:", loading: make(chan struct{}, 1), replied: never,
		}
	}
	return s, nil
}

// ready says why an operation cannot start: the handle is closed or ctx over.
func (s *Store) ready(ctx context.Context) error {
	if s.closed() {
		return store.ErrClosed
	}
	return ctx.Err()
}

func (s *Store) closed() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// Acquire implements [store.Store]. It takes one round trip and blocks until
// the reply or the end of ctx. The first request to be queued in its part of
// the names subscribes to wake-ups and asks again, which takes two more. It waits a third
// of WaitTTL for the subscription. While the server says that it cannot serve just
// now (it is loading, or a cluster moves the slot) the call is repeated until
// ctx ends.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	if err := s.ready(ctx); err != nil {
		return store.Grant{}, err
	}
	n := s.keys.of(req.Name)
	g, err := s.ask(ctx, req, n)
	if err != nil || g.Held {
		return g, err
	}
	return s.whenListening(ctx, req, n, g)
}

// whenListening returns the answer to a request that was queued. Without a
// subscription to wake-ups it subscribes, and asks again.
func (s *Store) whenListening(ctx context.Context, req store.Request, n *name, g store.Grant) (store.Grant, error) {
	heard := s.wakeups.listening(n.partition, req.WaitTTL)
	if heard == nil {
		return g, nil
	}
	// The grant may have been pushed before this handle subscribed: ask again
	// when it has. To connect may take longer than the place lasts, which the caller
	// has to renew. A subscription that comes later tells it to ask, by an Event{}.
	early := time.NewTimer(req.WaitTTL / 3)
	defer early.Stop()
	select {
	case <-heard:
		again, err := s.ask(ctx, req, n)
		if errors.Is(err, store.ErrRefused) {
			return g, nil // memory is full by now, and it has its place all the same
		}
		return again, err
	case <-early.C:
	case <-ctx.Done():
	case <-s.closing:
	}
	return g, nil
}

// ask runs the acquire script once.
func (s *Store) ask(ctx context.Context, req store.Request, n *name) (store.Grant, error) {
	if s.replicas > 0 && req.Queue {
		s.queuedHere.note(req)
	}
	s.failed.begin(req.ID)
	reply, missing, err := s.runConfirmed(ctx, s.scripts.acquire, n, s.acquireArgs(req))
	g, err := s.readAcquire(req, n, reply, err)
	switch {
	case err != nil || !g.Held:
	case missing != nil:
		s.failed.note(req, missing)
		return store.Grant{}, missing // unknown: the grant is there, and may be confirmed yet
	default:
		s.queuedHere.take(req.ID) // it needs no event any more
	}
	return g, err
}

// grant reads the reply of the acquire script.
func grant(reply rueidis.RedisMessage, req store.Request) (store.Grant, error) {
	if reply.IsString() { // a name that was free
		text, err := reply.ToString()
		token, short, ok := parseSpan(text)
		if err != nil || !ok {
			return store.Grant{}, unexpected("acquire", err)
		}
		return store.Grant{Held: true, Token: token, Short: short, TTL: req.TTL, Holds: 1}, nil
	}
	parts, err := reply.ToArray()
	if err != nil || len(parts) == 0 {
		return store.Grant{}, unexpected("acquire", err)
	}
	var n [5]int64
	heldBy, age := "", time.Duration(0)
	for i, part := range parts[:min(len(parts), len(n))] {
		if part.IsString() {
			text, _ := part.ToString()
			if n[0] == 0 {
				age, text = parseAge(text)
			}
			heldBy = unescape(text)
		} else if n[i], err = part.AsInt64(); err != nil {
			return store.Grant{}, unexpected("acquire", err)
		}
	}
	switch {
	case n[0] == 1 && len(parts) == 5:
		return store.Grant{
			Held: true, Token: uint64(n[1]), Short: int(n[2]), TTL: time.Duration(n[3]) * time.Millisecond, Holds: int(n[4]),
		}, nil
	case n[0] == 0 && len(parts) == 5:
		return store.Grant{Token: uint64(n[1]), Position: int(n[2]), Retry: time.Duration(n[3]) * time.Millisecond, HeldBy: heldBy, HeldFor: age}, nil
	case n[0] == -1 && len(parts) == 3:
		return store.Grant{Retry: time.Duration(n[1]) * time.Millisecond, HeldBy: heldBy}, store.ErrHeld
	case n[0] == -2:
		return store.Grant{}, store.ErrUpgrade
	case n[0] == -3:
		return store.Grant{}, store.ErrLost
	}
	return store.Grant{}, unexpected("acquire", nil)
}

// parseAge cuts the age in ms off a label.
func parseAge(text string) (age time.Duration, label string) {
	digits, label, _ := strings.Cut(text, " ")
	ms, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, text
	}
	return time.Duration(ms) * time.Millisecond, label
}

// parseSpan reads what the scripts say of a new token: the token and, unless it is
// 0, how many tokens fewer than asked for are reserved.
func parseSpan(text string) (token uint64, short int, ok bool) {
	first, missing, several := strings.Cut(text, " ")
	token, err := strconv.ParseUint(first, 10, 64)
	if err == nil && several {
		short, err = strconv.Atoi(missing)
	}
	return token, short, err == nil && token > 0 && short >= 0
}

// Release implements [store.Store]. It takes one round trip, two if the hold is not
// the only entry of its name, blocks as Acquire does, and works when the server's
// memory is full.
//
// A lone hold is one field of a hash, so HDEL is a comparison of its id and a deletion in
// one. If it deletes nothing the hold is in another form, or gone, and the script decides.
func (s *Store) Release(ctx context.Context, ref store.Ref) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	n := s.keys.of(ref.Name)
	ref.Bury = s.failed.mayArrive(ref)
	if !ref.Bury && !n.contended() {
		switch deleted, err := s.deleteLone(ctx, n, ref.ID); {
		case err != nil:
			return s.outcomeOf(n, err)
		case deleted == 1:
			return nil
		}
		n.markContended()
	}
	reply, err := s.run(ctx, s.scripts.release, n, releaseArgs(ref))
	if err != nil {
		return s.outcomeOf(n, err)
	}
	switch found, err := reply.AsInt64(); {
	case err != nil:
		return unexpected("release", err)
	case found == 0:
		return store.ErrLost
	}
	return nil
}

func (s *Store) deleteLone(ctx context.Context, n *name, id string) (deleted int64, err error) {
	reply, err := s.combiner(n).do(ctx, deleteLone(s.client, n, id))
	if notRun(err) {
		err = s.repeatNotRun(ctx, func() error {
			reply, err = s.combiner(n).do(ctx, deleteLone(s.client, n, id))
			return err
		})
	}
	if err != nil {
		return 0, err
	}
	return reply.AsInt64()
}

func deleteLone(c rueidis.Client, n *name, id string) rueidis.Completed {
	return c.B().Hdel().Key(n.lock).Field("L:" + id).Build()
}

// MinTTL implements [store.Store]: 10 ms.
func (s *Store) MinTTL() time.Duration { return minTTL }

// Close implements [store.Store]. It ends the handle's subscriptions, which
// takes up to a second if the server does not answer, with MinReplicas up to
// ReplicaTimeout and three more where a grant is being confirmed, as long as it takes to
// connect where a connection is being opened, and ten seconds at most. It closes the client if
// [Open] made it; one given to [New] is left to the caller. Calls under way end
// with what they were answered, or their outcome is unknown.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		close(s.closing)
		s.wakeups.close()
		if s.owned {
			s.client.Close()
		}
	})
	return nil
}

// newID is 128 random bits in hexadecimal.
func newID() string {
	var id [16]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}
