package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/internal/storeurl"
)

// defaultSession is the session timeout that Open asks for. Locks do not depend
// on it. It decides how soon a frozen server is left: after two thirds of it.
const defaultSession = 6 * time.Second

// The client counts a session timeout in milliseconds, with 32 bits.
const minSession, maxSession = 100 * time.Millisecond, time.Hour

// ErrInvalidURL: [Open] was given something that is no URL of this store. The
// error does not repeat the URL, which may contain a password.
var ErrInvalidURL = storeurl.ErrInvalid

// Open connects to the members of a URL and returns a handle, whose Close closes
// the connection. It blocks until a member has answered, 10 seconds at most, and
// fails if none does.
//
//	zk://[user:password@]host[:port][,host[:port]...][/root][?session_timeout=6s]
//
// User and password are for the scheme digest, and special characters in them are
// percent-encoded. The nodes that the handle makes are then for that user alone.
// root is as in [Options]. An unknown parameter is an error.
func Open(url string) (*Store, error) {
	u, err := storeurl.Parse(url, "2181", "zk")
	if err != nil {
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	session := u.Parameters.Duration("session_timeout")
	if session == 0 {
		session = defaultSession
	}
	if session < minSession || session > maxSession {
		u.Parameters.Fail("session_timeout is not between %v and %v", minSession, maxSession)
	}
	if (u.User == "") != (u.Password == "") {
		u.Parameters.Fail("a user and a password need each other")
	}
	if err := u.Parameters.Done(); err != nil {
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	opts := &Options{}
	if path := strings.TrimSuffix(u.Path, "/"); path != "" {
		opts.Root = "/" + path
	}
	var failed atomic.Pointer[error] // of the last dial; the client does not report it
	dial := func(network, address string, timeout time.Duration) (net.Conn, error) {
		c, err := dialHost(network, address, timeout)
		if err != nil {
			failed.Store(&err)
			return nil, err
		}
		failed.Store(nil)
		return &link{Conn: c, patience: session / 2}, nil
	}
	conn, _, err := zk.Connect(u.Hosts, session, zk.WithLogger(silent{}), zk.WithLogInfo(false),
		zk.WithDialer(dial), zk.WithHostProvider(&hosts{}))
	if err != nil {
		return nil, fmt.Errorf("zookeeper: connect to %s: %w", strings.Join(u.Hosts, ", "), err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	if u.User != "" {
		opts.ACL = zk.AuthACL(zk.PermAll)
		err = untilServed(ctx, func() error { return conn.AddAuth("digest", []byte(u.User+":"+u.Password)) })
	}
	var s *Store
	if err == nil {
		s, err = newStore(ctx, conn, opts)
	}
	if err != nil {
		conn.Close()
		if last := failed.Load(); last != nil {
			err = fmt.Errorf("%w: %w", err, *last)
		}
		return nil, fmt.Errorf("zookeeper: connect to %s: %w", strings.Join(u.Hosts, ", "), err)
	}
	s.owned = true
	return s, nil
}

// lookupTimeout is how long a dial waits for the addresses of a name.
const lookupTimeout = 3 * time.Second

// dialHost connects to a host. It looks the name up each time, since the addresses of a
// member may change. The order is random, so a frozen member is left for another one.
func dialHost(network, hostPort string, timeout time.Duration) (net.Conn, error) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	for _, i := range rand.Perm(len(addresses)) {
		var c net.Conn
		if c, err = net.DialTimeout(network, net.JoinHostPort(addresses[i], port), timeout); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// link is a connection that is given up if the server does not answer at all. The
// client would wait for seven session timeouts, while other members serve.
type link struct {
	net.Conn
	patience time.Duration
	answered bool
}

// Read implements [net.Conn].
func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	l.answered = l.answered || n > 0
	return n, err
}

// SetReadDeadline implements [net.Conn].
func (l *link) SetReadDeadline(t time.Time) error {
	if first := time.Now().Add(l.patience); !l.answered && t.After(first) {
		t = first
	}
	return l.Conn.SetReadDeadline(t)
}

// retryPause is between two tries of untilServed.
const retryPause = 50 * time.Millisecond

// untilServed calls f until a server answers or ctx ends, and returns its error, at
// the end of ctx with the last one of f. The client reports that no server serves
// after it has tried each once.
func untilServed(ctx context.Context, f func() error) error {
	var last error
	for ctx.Err() == nil {
		tried := make(chan error, 1)
		go func() { tried <- f() }()
		select {
		case last = <-tried:
			if !errors.Is(last, zk.ErrConnectionClosed) && !errors.Is(last, zk.ErrNoServer) {
				return last
			}
		case <-ctx.Done():
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		}
	}
	if last != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), last)
	}
	return ctx.Err()
}

// silent drops what the client would log: what matters comes as an error.
type silent struct{}

// Printf implements [zk.Logger].
func (silent) Printf(string, ...any) {}

// hosts are the members, by name: a dial looks for their addresses. A connection that
// breaks after it has lasted for a while is opened again at once. The client would wait
// for a second if there is one member.
type hosts struct {
	list      []string // the next one first
	tried     int      // how many were since the last pause or connection
	connected time.Time
}

// Init implements [zk.HostProvider]. The client has shuffled the members.
func (h *hosts) Init(servers []string) error {
	h.list = slices.Clone(servers)
	return nil
}

// Len implements [zk.HostProvider].
func (h *hosts) Len() int { return len(h.list) }

// Connected implements [zk.HostProvider]. A member whose connection breaks is
// the last of the next round.
func (h *hosts) Connected() { h.connected, h.tried = time.Now(), 1 }

// Next implements [zk.HostProvider].
func (h *hosts) Next() (server string, retryStart bool) {
	lasted := !h.connected.IsZero() && time.Since(h.connected) > time.Second
	h.connected = time.Time{}
	if h.tried == len(h.list) {
		h.tried, retryStart = 0, !lasted
	}
	h.tried++
	server = h.list[0]
	h.list = append(h.list[1:], server)
	return server, retryStart
}
