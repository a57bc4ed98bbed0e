package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
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

// lookUp is net's, but in tests.
var lookUp = net.DefaultResolver.LookupSRV

// Open connects to the members of a URL and returns a handle, whose Close closes the connections. It blocks
// until a member has answered, and fails if none does within twice dial_timeout, in which SRV records are looked up, too.
// To log in may take dial_timeout more.
//
//	etcd://[user:password@]host[:port][,host[:port]...][/prefix][?parameters]
//	etcd+srv://[user:password@]domain[/prefix][?parameters]
//
// The second takes the members from the SRV records of the domain, as etcdctl --discovery-srv does: those of
// _etcd-client-ssl._tcp with TLS, else those of _etcd-client._tcp. They are looked up once. Special characters
// of user and password are percent-encoded. The parameters:
//
//	user, password    instead of those before the hosts
//	dial_timeout      as said above, 3s by default
//	sync              how often to ask the cluster for its members, such as 1m; not at all by default, for the
//	                  addresses that members advertise may not lead to them from everywhere
//	tls               true: with TLS, as any of the next four asks for too
//	ca_file           PEM file of the authority, instead of the system's
//	cert_file, key_file   PEM files; the certificate is read again for each connection
//	server_name       the name in the certificates of all members, instead of the host of each; with etcd+srv
//	                  that name is the domain by default, since anybody may have forged the records
//
// An unknown parameter is an error.
func Open(rawURL string) (*Store, error) {
	config, opts, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*config.DialTimeout)
	defer cancel()
	if strings.HasPrefix(rawURL, discovered) {
		if config.Endpoints, err = discover(ctx, config); err != nil {
			return nil, err
		}
	}
	var last lastError
	config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(last.note))
	client, err := clientv3.New(*config)
	if err != nil {
		return nil, fmt.Errorf("etcd: connect to %s: %w", strings.Join(config.Endpoints, ", "), last.explain(err))
	}
	s, err := newStore(ctx, client, opts)
	if err != nil {
		client.Close()
		return nil, last.explain(err)
	}
	s.owned = true
	return s, nil
}

// lastError is that of the last call that failed, as gRPC has it: a certificate with another name, for example. Of calls
// that found no member in time the client says no more than that the time is over.
type lastError struct{ atomic.Pointer[error] }

func (l *lastError) note(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := call(ctx, method, req, reply, cc, opts...)
	if failed := err; failed != nil {
		l.Store(&failed)
	}
	return err
}

// explain adds it to an error of the client.
func (l *lastError) explain(err error) error {
	if why := l.Load(); why != nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", err, *why)
	}
	return err
}

// discovered begins the URL of a domain whose SRV records name the members.
const discovered = "etcd+srv://"

func discover(ctx context.Context, c *clientv3.Config) (members []string, err error) {
	if len(c.Endpoints) != 1 {
		return nil, fmt.Errorf("etcd: %w", storeurl.Invalid("%s takes one domain", discovered))
	}
	domain, _, _ := net.SplitHostPort(c.Endpoints[0])
	service := "etcd-client"
	if c.TLS != nil {
		service += "-ssl"
	}
	_, records, err := lookUp(ctx, service, "tcp", domain)
	if err != nil {
		return nil, fmt.Errorf("etcd: look up the members: %w", err)
	}
	for _, r := range records {
		members = append(members, net.JoinHostPort(strings.TrimSuffix(r.Target, "."), strconv.Itoa(int(r.Port))))
	}
	if len(members) == 0 {
		return nil, fmt.Errorf("etcd: %s has no SRV records of %s", domain, service)
	}
	return members, nil
}

// parseURL says what client and options a URL asks for.
func parseURL(raw string) (*clientv3.Config, *Options, error) {
	u, err := storeurl.Parse(raw, "2379", "etcd", "etcd+srv")
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
	c.AutoSyncInterval = p.Duration("sync")
	secure, files := p.Flag("tls", false), p.TLS()
	if err := p.Done(); err != nil {
		return nil, nil, fmt.Errorf("etcd: %w", err)
	}
	if secure || files.Given() {
		if c.TLS, err = files.Config(); err != nil {
			return nil, nil, fmt.Errorf("etcd: %w", err)
		}
		if c.TLS.ServerName == "" && u.Scheme+"://" == discovered {
			c.TLS.ServerName, _, _ = net.SplitHostPort(u.Hosts[0])
		}
		if c.TLS.ServerName != "" { // gRPC would verify the host of each member all the same
			c.DialOptions = append(c.DialOptions, grpc.WithAuthority(c.TLS.ServerName))
		}
	}
	return c, opts, nil
}
