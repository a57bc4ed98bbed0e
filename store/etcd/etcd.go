// Package etcd is a dlock store on etcd, by its client of version 3.6.16 or newer. Each hold and each waiter is
// a key of its own, whose name says which of the two it is and in which mode. The model of package store is
// decided by transactions that compare which keys are there; each waiter is granted by its own handle.
//
// Keys hang on leases of whole seconds. Up to 256 holds of a handle share one, so one request renews them; one more
// for each 128 sees whether they are there. docs/etcd.md is for operators.
//
// A token is a revision, shifted. A cluster that restarts without its data begins at revision 1 again, so
// tokens do, too: then a resource that has seen greater ones refuses the new holders until an operator resets
// it. A holder hears of such a loss by its next renewal.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/internal/sinks"
	"github.com/dlock-go/dlock/store"
)

const (
	callTimeout = 3 * time.Second // of calls that no caller bounds
	farewell    = time.Second     // of the parting words of a handle that closes
)

// Options of a store. The zero of each field means the default that its comment states.
type Options struct {
	// Prefix begins all keys, before a slash. Clients share locks only under the same prefix; locks/a and locks
	// do not go together, because the one's keys would be among the other's. At most 128 printable ASCII
	// characters without spaces; "" means "dlock".
	Prefix string
}

// Store is one handle on the locks of a cluster and prefix. It is safe for concurrent use.
type Store struct {
	client *clientv3.Client
	owned  bool // Close closes the client
	keys   layout
	minTTL time.Duration

	leases  leases
	records records
	watches watches

	releases releases
	together combiner

	sinks *sinks.Sinks

	ctx     context.Context // ends with the handle
	stop    context.CancelFunc
	tasks   sync.WaitGroup
	closing sync.Once
	mu      sync.Mutex // no task begins when the handle has ended

}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Breaker = (*Store)(nil)
	_ store.Lister  = (*Store)(nil)
)

// New returns a handle that uses a client the caller has. Nil opts means defaults. It asks the server for its shortest
// lease, which takes up to three seconds, and fails if there is no answer. The client stays the caller's: close it
// after the store, not before.
func New(c *clientv3.Client, opts *Options) (*Store, error) {
	if c == nil {
		return nil, errors.New("etcd: the client is nil")
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return newStore(ctx, c, opts)
}

func newStore(ctx context.Context, c *clientv3.Client, opts *Options) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Prefix == "" {
		o.Prefix = "dlock"
	}
	if len(o.Prefix) > maxPrefixLen || strings.ContainsFunc(o.Prefix, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("etcd: Prefix %q is not up to %d printable ASCII characters without spaces", o.Prefix, maxPrefixLen)
	}
	minTTL, err := shortestLease(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("etcd: ask %s for the shortest lease: %w", strings.Join(c.Endpoints(), ", "), err)
	}
	s := &Store{client: c, keys: layout{o.Prefix}, minTTL: minTTL, sinks: sinks.New()}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.leases = leases{s: s, m: make(map[leaseKind][]*lease), new: make(chan struct{}, 1)}
	s.records = records{s: s, m: make(map[string]*record), first: make(map[string]*record)}
	s.watches = watches{s: s, m: make(map[string]*nameWatch)}
	s.releases = releases{m: make(map[string]chan struct{})}
	s.together = combiner{s: s, patience: maxWait, most: maxTogether}
	s.spawn(s.records.sweep)
	s.spawn(s.findOrphans)
	s.spawn(func() { s.sinks.Deliver(s.ctx) })
	return s, nil
}

// shortestLease asks for a lease of a second, and sees what the server makes of it: never less than its
// election timeout and a half.
func shortestLease(ctx context.Context, c *clientv3.Client) (time.Duration, error) {
	answer, err := c.Grant(ctx, 1)
	if err != nil {
		return 0, err
	}
	if _, err = c.Revoke(ctx, answer.ID); errors.Is(err, rpctypes.ErrLeaseNotFound) {
		err = nil // its time is over already, or the client has asked twice
	}
	return time.Duration(answer.TTL) * time.Second, err
}

// ready says why an operation cannot start: the handle is closed or ctx over.
func (s *Store) ready(ctx context.Context) error {
	if s.ctx.Err() != nil {
		return store.ErrClosed
	}
	return ctx.Err()
}

// MinTTL implements [store.Store]: the server's shortest lease, in whole seconds. It follows from its election
// timeout.
func (s *Store) MinTTL() time.Duration { return s.minTTL }

// Listen implements [store.Store]. Sinks are called from one goroutine, one after the other: one that blocks
// delays the other sinks' events, but no call.
func (s *Store) Listen(sink func(store.Event)) (stop func()) { return s.sinks.Listen(sink) }

// spawn runs f on a goroutine of the handle, unless that has ended, and says whether it does.
func (s *Store) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.tasks.Go(f)
	return true
}

// Close implements [store.Store]. It ends the handle's watches, revokes those of its leases that nothing hangs
// on, leaves the others to time, and closes the client if [Open] made it. It takes up to three seconds if the
// server does not answer.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.mu.Lock()
		s.stop()
		s.mu.Unlock()
		s.sinks.Close()
		s.tasks.Wait()
		s.leases.revokeUnused()
		if s.owned {
			s.closeClient()
		}
	})
	return nil
}

// closeClient closes the client. The client waits without end if it is closed at the moment at which the server
// refuses a watch: then nobody takes note that the watch has ended.
func (s *Store) closeClient() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.client.Close()
	}()
	select {
	case <-closed:
	case <-time.After(farewell):
		s.client.ActiveConnection().Close()
	}
}

// sleep waits, and reports whether ctx is still on.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
