// Package zookeeper keeps dlock's locks in Apache ZooKeeper, version 3.5 or newer.
//
// Each lock name has one node with the record of package store/model, which is
// changed by a transaction that compares its version. Time is the leader's: each
// write tells it. A token is the zxid of the transaction that granted the lock.
// Waiters watch a node of their own, which the transaction that grants deletes.
//
// docs/zookeeper.md is for users and operators.
package zookeeper

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/internal/sinks"
	"github.com/dlock-go/dlock/store"
)

// DefaultRoot is the node below which the locks are if Options say nothing else.
const DefaultRoot = "/dlock"

const (
	minTTL      = 200 * time.Millisecond
	openTimeout = 10 * time.Second
)

// Options of a Store. The zero value of each field means its default.
type Options struct {
	// Root is the node below which the locks are, such as "/app/locks". It is made
	// if it is missing. All handles on the same locks have the same root, and
	// nothing else uses it. Default: [DefaultRoot].
	Root string

	// ACL is given to each node that the store makes. Default: everyone may do
	// everything, or for a URL with a user, that user alone.
	ACL []zk.ACL
}

// Store is one handle on the locks below a root. It is safe for concurrent use.
type Store struct {
	conn  *zk.Conn
	owned bool // Close closes conn
	root  string
	acl   []zk.ACL
	id    string // of this handle, in records

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	sinks  *sinks.Sinks
	clock  clock

	mu       sync.Mutex
	names    map[string]*nameState
	maxNames int                  // how many there may be before some are forgotten
	waiting  map[string]time.Time // when the places of this handle's requests end, by id

	made atomic.Int64 // names that this handle has made
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Breaker = (*Store)(nil)
	_ store.Lister  = (*Store)(nil)
)

// New returns a handle on the locks that conn reaches. A nil *Options means the
// defaults. Close leaves the connection open. New makes the root if it is
// missing, and takes 10 seconds at most.
func New(conn *zk.Conn, opts *Options) (*Store, error) {
	if conn == nil {
		return nil, errors.New("zookeeper: no connection")
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	return newStore(ctx, conn, opts)
}

func newStore(ctx context.Context, conn *zk.Conn, opts *Options) (*Store, error) {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	if o.Root == "" {
		o.Root = DefaultRoot
	}
	if !strings.HasPrefix(o.Root, "/") || strings.HasSuffix(o.Root, "/") {
		return nil, errors.New("zookeeper: the root does not begin with / or ends with it")
	}
	if o.ACL == nil {
		o.ACL = zk.WorldACL(zk.PermAll)
	}
	s := &Store{
		conn: conn, root: o.Root, acl: o.ACL, id: rand.Text()[:12],
		sinks: sinks.New(), names: map[string]*nameState{}, waiting: map[string]time.Time{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := untilServed(ctx, s.makeFolders); err != nil {
		s.cancel()
		return nil, fmt.Errorf("zookeeper: make the node %s: %w", s.root, err)
	}
	go s.sinks.Deliver(s.ctx)
	return s, nil
}

// MinTTL implements [store.Store].
func (s *Store) MinTTL() time.Duration { return minTTL }

// Listen implements [store.Store].
func (s *Store) Listen(sink func(store.Event)) (stop func()) { return s.sinks.Listen(sink) }

// Close implements [store.Store]. Calls under way end with an unknown outcome.
func (s *Store) Close() error {
	s.cancel()
	s.sinks.Close()
	if s.owned {
		s.conn.Close()
	}
	return nil
}
