package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/internal/storeurl"
)

// What suits a client that carries locks and nothing else.
const (
	dialTimeout = 3 * time.Second
	// A connection that has said nothing for a second is probed, and given up
	// when no answer has come for three: a half-open one must not eat a lease.
	probeAfter       = time.Second
	giveUpAfter      = 3 * time.Second
	mostRedirections = 3               // of a command in a cluster; then it pauses, see repeatNotRun
	topologyLook     = 2 * time.Second // at the sentinels, beside listening to them
	openTimeout      = 10 * time.Second
)

// ErrInvalidURL: [Open] was given something that is no URL of this store. The
// error does not repeat the URL, which may contain a password.
var ErrInvalidURL = storeurl.ErrInvalid

// ErrVersion: the server is older than Redis 7.0, or no Redis.
var ErrVersion = errors.New("redis: Redis 7.0 or newer is required")

// Open connects to the servers of a URL and returns a handle, whose Close
// closes the connections. It blocks until connected, up to dial_timeout for each host
// that does not answer and 10 seconds for the first reply, and fails if no server
// answers or if it is older than Redis 7.0 ([ErrVersion]).
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
//	                                        read for each connection
//	server_name                             the name in the certificates of all servers,
//	                                        instead of the host of each
//
// An unknown parameter is an error.
func Open(rawURL string) (*Store, error) {
	client, opts, err := checkURL(rawURL)
	if err != nil {
		return nil, err
	}
	c, err := rueidis.NewClient(*client)
	if err != nil {
		return nil, fmt.Errorf("redis: connect to %s: %w", strings.Join(client.InitAddress, ", "), helpOpen(err, client.TLSConfig != nil))
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
	for p := range s.combiners {
		s.combiners[p].direct = client.AlwaysPipelining
	}
	if c.Mode() != rueidis.ClientModeCluster {
		s.combiners[0].replied = time.Since(start) // it has said its version
	}
	return s, nil
}

// checkURL is parseURL that also checks what needs no server: the options.
func checkURL(rawURL string) (*rueidis.ClientOption, *Options, error) {
	client, opts, err := parseURL(rawURL)
	if err != nil {
		return nil, nil, err
	}
	if _, err := New(noClient{}, opts); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrInvalidURL, err)
	}
	return client, opts, nil
}

// noClient is for [New] where it only checks options.
type noClient struct{ rueidis.Client }

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
	case !errors.As(err, &reply), replyIs(err, "NOPERM", "NOAUTH", "WRONGPASS"):
		return fmt.Errorf("redis: %w", help(err))
	case isState(reply.Error()):
		return nil // it passes; the calls deal with it
	}
	return fmt.Errorf("%w: %w", ErrVersion, err) // it does not know #!lua
}

// isState reports whether a reply begins with a code, such as LOADING. The code
// ERR, which stands for all else, is taken off by rueidis.
func isState(text string) bool {
	code, _, _ := strings.Cut(text, " ")
	return code != "" && code != "ERR" && strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

func atLeast7(version string) bool {
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	return err == nil && n >= 7
}

// parseURL says what client and options a URL asks for.
func parseURL(raw string) (*rueidis.ClientOption, *Options, error) {
	u, err := storeurl.Parse(raw, "6379", "redis", "rediss")
	if err != nil {
		return nil, nil, fmt.Errorf("redis: %w", err)
	}
	o := &rueidis.ClientOption{
		InitAddress: u.Hosts, Username: u.User, Password: u.Password,
		DisableCache: true, PipelineMultiplex: -1,
		ClientSetInfo:    rueidis.DisableClientSetInfo,
		Dialer:           net.Dialer{Timeout: dialTimeout, KeepAlive: probeAfter},
		ConnWriteTimeout: giveUpAfter,
	}
	p := &u.Parameters
	if u.Path != "" {
		if o.SelectDB, err = strconv.Atoi(u.Path); err != nil || o.SelectDB < 0 {
			p.Fail("the path of the URL is the number of a database, 0 or greater")
		}
	}
	opts := &Options{Prefix: p.Text("prefix"), MinReplicas: p.Number("min_replicas"), ReplicaTimeout: p.Duration("replica_timeout")}
	if d := p.Duration("dial_timeout"); d != 0 {
		o.Dialer.Timeout = d
	}
	// A connection that goes back to the pool is cleaned by commands if it is pipelined,
	// and rueidis panics if a busy server refuses those. Each WAIT takes one.
	o.AlwaysPipelining = opts.MinReplicas == 0
	if opts.MinReplicas > 0 {
		// rueidis pings an idle connection after probeAfter. One that is taken meanwhile becomes pipelined.
		o.BlockingPoolCleanup = probeAfter / 2
	}
	// Two nodes of a cluster that send each other a command would do so for as long as the handle lives.
	o.ClusterOption.MaxMovedRedirections = mostRedirections
	o.ForceSingleClient = !p.Flag("cluster", true)
	sentinel := rueidis.SentinelOption{
		MasterSet: p.Text("master_set"), TopologyRefreshInterval: topologyLook,
		Username: p.Text("sentinel_user"), Password: p.Text("sentinel_password"),
	}
	files := p.TLS()
	if u.Scheme == "redis" && files.Given() {
		p.Fail("ca_file, cert_file, key_file and server_name need rediss://")
	}
	if o.ForceSingleClient && sentinel.MasterSet == "" && len(u.Hosts) > 1 {
		p.Fail("cluster=false needs one host, or master_set") // rueidis would use the first host alone
	}
	if sentinel.MasterSet == "" && sentinel.Username+sentinel.Password != "" {
		p.Fail("sentinel_user and sentinel_password need master_set")
	}
	if err := p.Done(); err != nil {
		return nil, nil, fmt.Errorf("redis: %w", err)
	}
	if u.Scheme == "rediss" {
		if o.TLSConfig, err = files.Config(); err != nil {
			return nil, nil, fmt.Errorf("redis: %w", err)
		}
	}
	if sentinel.MasterSet != "" {
		sentinel.Dialer, sentinel.TLSConfig = o.Dialer, o.TLSConfig
		o.Sentinel = sentinel
	}
	return o, opts, nil
}
