package etcd

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/dlock-go/dlock/internal/storeurl"
)

// What suits a client that carries locks and nothing else.
const (
	dialTimeout = 3 * time.Second
	// A connection of a watch that has said nothing for ten seconds, the least that gRPC allows, is probed, and
	// given up when no answer has come for two more. Calls see to it sooner (link.go).
	probeAfter  = 10 * time.Second
	giveUpAfter = 2 * time.Second
	// The pauses before a broken connection is opened again.
	firstReconnect = 50 * time.Millisecond
	lastReconnect  = time.Second
)

// ErrInvalidURL: [Open] was given something that is no URL of this store. The error does not repeat the URL,
// which may contain a password.
var ErrInvalidURL = storeurl.ErrInvalid

// Open connects to the members of a URL and returns a handle, whose Close closes the connections. It blocks
// until a member has answered, twice dial_timeout at most, and fails if none does.
//
//	etcd://[user:password@]host[:port][,host[:port]...][/prefix][?parameters]
//
// Special characters of user and password are percent-encoded. The parameters:
//
//	user, password    instead of those before the hosts
//	dial_timeout      for the first connection, 3s by default
//	tls               true: with TLS, as any of the next four asks for too
//	ca_file           PEM file of the authority, instead of the system's
//	cert_file, key_file   PEM files; the certificate is read anew for each connection
//	server_name       the name in the members' certificate
//
// An unknown parameter is an error.
func Open(rawURL string) (*Store, error) {
	config, opts, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*config.DialTimeout)
	defer cancel()
	client, err := clientv3.New(*config)
	if err != nil {
		return nil, fmt.Errorf("etcd: connect to %s: %w", strings.Join(config.Endpoints, ", "), err)
	}
	s, err := newStore(ctx, client, opts)
	if err != nil {
		client.Close()
		return nil, err
	}
	s.owned = true
	return s, nil
}

// parseURL says what client and options a URL asks for.
func parseURL(raw string) (*clientv3.Config, *Options, error) {
	u, err := storeurl.Parse(raw, "2379", "etcd")
	if err != nil {
		return nil, nil, fmt.Errorf("etcd: %w", err)
	}
	c := &clientv3.Config{
		Endpoints: u.Hosts, Username: u.User, Password: u.Password, DialTimeout: dialTimeout,
		// Not without a stream: the server would hang up on whoever probes then.
		DialKeepAliveTime: probeAfter, DialKeepAliveTimeout: giveUpAfter,
		Logger: zap.NewNop(),
		// By default a broken connection is tried again after up to two minutes.
		DialOptions: append((&links{m: make(map[string]*link)}).options(), grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstReconnect, Multiplier: 1.6, Jitter: 0.2, MaxDelay: lastReconnect},
			MinConnectTimeout: dialTimeout,
		})),
	}
	p := &u.Parameters
	opts := &Options{Prefix: strings.TrimSuffix(u.Path, "/")}
	if user, password := p.Text("user"), p.Text("password"); user+password != "" {
		if c.Username+c.Password != "" {
			p.Fail("user and password are given twice")
		}
		c.Username, c.Password = user, password
	}
	if c.Username == "" && c.Password != "" {
		p.Fail("a password needs a user")
	}
	if d := p.Duration("dial_timeout"); d != 0 {
		c.DialTimeout = d
	}
	secure, files := p.Flag("tls", false), p.TLS()
	if err := p.Done(); err != nil {
		return nil, nil, fmt.Errorf("etcd: %w", err)
	}
	if secure || files.Given() {
		if c.TLS, err = files.Config(u.Hosts[0]); err != nil {
			return nil, nil, fmt.Errorf("etcd: %w", err)
		}
	}
	return c, opts, nil
}
