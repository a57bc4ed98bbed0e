package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// What suits a client that carries locks and nothing else.
const (
	dialTimeout = 3 * time.Second
	// A connection that has said nothing for a second is probed, and given up
	// when no answer has come for three: a half-open one must not eat a lease.
	probeAfter   = time.Second
	giveUpAfter  = 3 * time.Second
	topologyLook = 2 * time.Second // at the sentinels, beside listening to them
	openTimeout  = 10 * time.Second
)

// ErrInvalidURL: [Open] was given something that is no URL of this store. The
// error does not repeat the URL, which may contain a password.
var ErrInvalidURL = errors.New("redis: invalid URL")

// ErrVersion: the server is older than Redis 7.0, or no Redis.
var ErrVersion = errors.New("redis: Redis 7.0 or newer is required")

// Open connects to the servers of a URL and returns a handle, whose Close
// closes the connections. It blocks until connected, 10 seconds at most, and
// fails if no server answers or if it is older than Redis 7.0 ([ErrVersion]).
//
//	redis://[user:password@]host[:port][,host[:port]...][/database][?parameters]
//
// rediss:// is the same with TLS. One host is a server, or a node of a cluster;
// several are nodes of a cluster or, with master_set, sentinels. Special
// characters of user and password are percent-encoded. The parameters:
//
//	prefix, min_replicas, replica_timeout   as in Options
//	master_set                              name of the master at the sentinels
//	sentinel_user, sentinel_password        for the sentinels, if they need it
//	cluster                                 false: do not ask whether it is one
//	dial_timeout                            for one connection, 3s by default
//	ca_file, cert_file, key_file            PEM files for TLS; the certificate is
//	                                        read anew for each connection
//	server_name                             the name in the servers' certificate
//
// An unknown parameter is an error.
func Open(rawURL string) (*Store, error) {
	client, opts, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	// Options are checked first: they need no server.
	if _, err := New(nobody{}, opts); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidURL, err)
	}
	c, err := rueidis.NewClient(*client)
	if err != nil {
		return nil, fmt.Errorf("redis: connect to %s: %w", strings.Join(client.InitAddress, ", "), err)
	}
	if err := requireVersion(c); err != nil {
		c.Close()
		return nil, err
	}
	s, err := New(c, opts)
	if err != nil {
		c.Close()
		return nil, err
	}
	s.owned = true
	return s, nil
}

// nobody stands for a client where only options are looked at.
type nobody struct{ rueidis.Client }

// requireVersion asks the server what it is by way of a script, which is a
// right that every user of this store has.
func requireVersion(c rueidis.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	version, err := c.Do(ctx, c.B().Eval().Script("#!lua flags=allow-oom,allow-stale\nreturn redis.REDIS_VERSION").Numkeys(0).Build()).ToString()
	var reply *rueidis.RedisError
	switch {
	case err == nil && atLeast7(version):
		return nil
	case err == nil:
		return fmt.Errorf("%w: this is %s", ErrVersion, version)
	case replyIs(err, "ERR"): // it does not know #!lua
		return fmt.Errorf("%w: %w", ErrVersion, err)
	case errors.As(err, &reply) && !replyIs(err, "NOPERM", "NOAUTH"):
		return nil // a state that passes; the calls deal with it
	}
	return fmt.Errorf("redis: %w", err)
}

func atLeast7(version string) bool {
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	return err == nil && n >= 7
}

// invalid is an error about a URL that says nothing of its contents but what.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalidURL}, args...)...)
}

func parseURL(raw string) (*rueidis.ClientOption, *Options, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || scheme != "redis" && scheme != "rediss" {
		return nil, nil, invalid("it does not begin with redis:// or rediss://")
	}
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	authority, rest := rest[:end], rest[end:]
	user, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	// net/url knows one host only, and its errors repeat what they complain of.
	u, err := url.Parse(scheme + "://" + user + "host" + rest)
	if err != nil {
		return nil, nil, invalid("user, password or parameters are not percent-encoded, or the form is not redis://[user:password@]host[:port][,...][/database][?parameters]")
	}
	if u.Fragment != "" {
		return nil, nil, invalid("it has a fragment (a # in a password is written %%23)")
	}

	o := &rueidis.ClientOption{
		DisableCache: true, AlwaysPipelining: true, PipelineMultiplex: -1,
		ClientSetInfo:    rueidis.DisableClientSetInfo,
		Dialer:           net.Dialer{Timeout: dialTimeout, KeepAlive: probeAfter},
		ConnWriteTimeout: giveUpAfter,
	}
	if o.InitAddress, err = addresses(hosts); err != nil {
		return nil, nil, err
	}
	if u.User != nil {
		o.Username = u.User.Username()
		o.Password, _ = u.User.Password()
	}
	if path := strings.TrimPrefix(u.Path, "/"); path != "" {
		if o.SelectDB, err = strconv.Atoi(path); err != nil || o.SelectDB < 0 {
			return nil, nil, invalid("the database is not a number")
		}
	}
	opts := &Options{}
	p := parameters{values: u.Query()}
	opts.Prefix = p.text("prefix")
	opts.MinReplicas = p.number("min_replicas")
	opts.ReplicaTimeout = p.duration("replica_timeout")
	if d := p.duration("dial_timeout"); d != 0 {
		o.Dialer.Timeout = d
	}
	o.ForceSingleClient = p.text("cluster") == "false"
	if v := p.text("cluster"); v != "" && v != "true" && v != "false" {
		p.fail("cluster is not true or false")
	}
	o.Sentinel = rueidis.SentinelOption{
		MasterSet: p.text("master_set"), TopologyRefreshInterval: topologyLook,
		Username: p.text("sentinel_user"), Password: p.text("sentinel_password"),
	}
	files := tlsFiles{ca: p.text("ca_file"), cert: p.text("cert_file"), key: p.text("key_file"), name: p.text("server_name")}
	if err := p.done(); err != nil {
		return nil, nil, err
	}
	switch {
	case scheme == "rediss":
		if o.TLSConfig, err = files.config(o.InitAddress[0]); err != nil {
			return nil, nil, err
		}
	case files != tlsFiles{}:
		return nil, nil, invalid("ca_file, cert_file, key_file and server_name need rediss://")
	}
	if o.Sentinel.MasterSet != "" {
		o.Sentinel.Dialer, o.Sentinel.TLSConfig = o.Dialer, o.TLSConfig
	} else {
		o.Sentinel = rueidis.SentinelOption{}
	}
	return o, opts, nil
}

// addresses splits host[:port],... and fills in the port.
func addresses(hosts string) ([]string, error) {
	var list []string
	for _, h := range strings.Split(hosts, ",") {
		host, port, err := net.SplitHostPort(h)
		if err != nil {
			host, port, err = net.SplitHostPort(h + ":6379")
		}
		if err != nil || host == "" {
			return nil, invalid("a host is missing or malformed")
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, invalid("a port is not a number between 1 and 65535")
		}
		list = append(list, net.JoinHostPort(host, port))
	}
	return list, nil
}

// parameters reads each one of a URL once, and complains of what is left over.
type parameters struct {
	values url.Values
	err    error
}

func (p *parameters) fail(format string, args ...any) {
	if p.err == nil {
		p.err = invalid(format, args...)
	}
}

func (p *parameters) text(name string) string {
	v := p.values[name]
	if len(v) > 1 {
		p.fail("%s is given twice", name)
	}
	p.values[name] = nil
	if len(v) == 0 {
		return ""
	}
	if v[0] == "" {
		p.fail("%s is empty", name)
	}
	return v[0]
}

func (p *parameters) number(name string) int {
	text := p.text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		p.fail("%s is not a number", name)
	}
	return n
}

func (p *parameters) duration(name string) time.Duration {
	text := p.text(name)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		p.fail("%s is not a positive duration such as 500ms", name)
	}
	return d
}

func (p *parameters) done() error {
	for name, v := range p.values {
		if v != nil {
			p.fail("unknown parameter %q", name)
		}
	}
	return p.err
}

// tlsFiles are the parameters of TLS.
type tlsFiles struct{ ca, cert, key, name string }

func (f tlsFiles) config(address string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.name}
	if c.ServerName == "" {
		c.ServerName, _, _ = net.SplitHostPort(address)
	}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("redis: ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, invalid("ca_file has no certificate in PEM")
		}
	}
	if (f.cert == "") != (f.key == "") {
		return nil, invalid("cert_file and key_file need each other")
	}
	if f.cert != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(f.cert, f.key)
			return &pair, err
		}
		if _, err := load(); err != nil {
			return nil, fmt.Errorf("redis: cert_file and key_file: %w", err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return c, nil
}
