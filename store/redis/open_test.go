package redis_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store/redis"
)

// What a URL says becomes options of the client and of the store.
func TestParseURL(t *testing.T) {
	t.Parallel()
	type parsed struct {
		addrs          string
		user, password string
		db             int
		single, tls    bool
		name           string // in the certificates, instead of each server's own
		set            string // sentinel master set
		sentinelUser   string
		sentinelSecret string
		dial           time.Duration
		opts           redis.Options
	}
	const dial = 3 * time.Second
	for raw, want := range map[string]parsed{
		"redis://h":                             {addrs: "h:6379"},
		"redis://h/":                            {addrs: "h:6379"},
		"redis://h:1":                           {addrs: "h:1"},
		"redis://h:65535/15":                    {addrs: "h:65535", db: 15},
		"redis://10.0.0.1:7000":                 {addrs: "10.0.0.1:7000"},
		"redis://[::1]:7000":                    {addrs: "[::1]:7000"},
		"redis://[::1]":                         {addrs: "[::1]:6379"},
		"redis://a,b:1,c":                       {addrs: "a:6379 b:1 c:6379"},
		"redis://:p@h":                          {addrs: "h:6379", password: "p"},
		"redis://u:p@h":                         {addrs: "h:6379", user: "u", password: "p"},
		"redis://u@h":                           {addrs: "h:6379", user: "u"},
		"redis://u:a%40b%2Fc%3A%23%3F%25@a,b/1": {addrs: "a:6379 b:6379", user: "u", password: "a@b/c:#?%", db: 1},
		"redis://h?cluster=false":               {addrs: "h:6379", single: true},
		"redis://h?cluster=true":                {addrs: "h:6379"},
		"redis://h?dial_timeout=250ms":          {addrs: "h:6379", dial: 250 * time.Millisecond},
		"redis://h?prefix=p%3Aq&min_replicas=2&replica_timeout=5s": {
			addrs: "h:6379", opts: redis.Options{Prefix: "p:q", MinReplicas: 2, ReplicaTimeout: 5 * time.Second},
		},
		"redis://u:p@a,b:1?master_set=m&sentinel_user=su&sentinel_password=sp%26": {
			addrs: "a:6379 b:1", user: "u", password: "p", set: "m", sentinelUser: "su", sentinelSecret: "sp&",
		},
		"rediss://h":                       {addrs: "h:6379", tls: true},
		"rediss://h?server_name=other":     {addrs: "h:6379", tls: true, name: "other"},
		"rediss://a,b?master_set=m":        {addrs: "a:6379 b:6379", tls: true, set: "m"},
		"rediss://[::1]:1/2?cluster=false": {addrs: "[::1]:1", tls: true, db: 2, single: true},
	} {
		o, opts, err := redis.ParseURL(raw)
		require.NoError(t, err, raw)
		got := parsed{
			addrs: strings.Join(o.InitAddress, " "), user: o.Username, password: o.Password, db: o.SelectDB,
			single: o.ForceSingleClient, tls: o.TLSConfig != nil, set: o.Sentinel.MasterSet,
			sentinelUser: o.Sentinel.Username, sentinelSecret: o.Sentinel.Password, dial: o.Dialer.Timeout, opts: *opts,
		}
		if got.set != "" {
			require.Equal(t, o.TLSConfig, o.Sentinel.TLSConfig, raw)
		}
		if got.tls {
			got.name = o.TLSConfig.ServerName
			require.False(t, o.TLSConfig.InsecureSkipVerify)
			require.GreaterOrEqual(t, o.TLSConfig.MinVersion, uint16(tls.VersionTLS12))
		}
		if want.dial == 0 {
			want.dial = dial
		}
		require.Equal(t, want, got, raw)
		require.True(t, o.DisableCache, raw)
		if opts.MinReplicas > 0 { // no connection is idle for so long that it is pinged
			require.Positive(t, o.BlockingPoolCleanup, raw)
			require.Less(t, o.BlockingPoolCleanup, o.Dialer.KeepAlive, raw)
		}
		require.NotNil(t, o.ClientSetInfo, raw) // unknown to 7.0
	}
}

// badURLs are no URLs of this store. Each has the canary where a password may
// be, also by mistake.
func badURLs(t testing.TB) []string {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	secret := url.QueryEscape(canary)
	with := func(format string) string { return strings.ReplaceAll(format, "SECRET", secret) }
	bad := []string{
		"", "redis", "redis:", "redis:/", "redis://", "redis:///", "REDIS://h",
		with("http://:SECRET@h"), with("redis:u:SECRET@h"), with(":SECRET@h:6379"), with("u:SECRET@h"),
		with("redis://:SECRET@"), with("redis://:SECRET@/1"), with("redis://:SECRET@:6379"), with("redis://:SECRET@a,,b"), with("redis://:SECRET@a,"),
		with("redis://:SECRET@h:port"), with("redis://:SECRET@h:0"), with("redis://:SECRET@h:65536"), with("redis://:SECRET@h:-1"), with("redis://:SECRET@h:"), with("redis://:SECRET@a:1:2"),
		with("redis://:SECRET@::1"), with("redis://:SECRET@[::1"),
		with("redis://:SECRET@h/db"), with("redis://:SECRET@h/-1"), with("redis://:SECRET@h/1/2"), with("redis://:SECRET@h/1.5"),
		with("redis://:SECRET@h#fragment"), with("redis://u:SECRET#x@h"),
		"redis://:x?p4ss@h", "redis://:x?p4ss=1@h", "redis://:x/p4ss@h", "redis://:x#p4ss@h", "redis://:x?prefix=p4ss%20@h",
		"redis://:" + canary + "%zz@h", "redis://u:" + canary + "@h:1", "redis://u:p4ss w0rd@h", "redis://u:\x00p4ss@h",
		with("redis://:SECRET@h?password=SECRET"), with("redis://:SECRET@h?Prefix=x"), with("redis://:SECRET@h?SECRET"), with("redis://:SECRET@h?SECRET=1"), with("redis://:SECRET@h?x=%zz"),
		with("redis://:SECRET@h?prefix=a&prefix=b"), with("redis://:SECRET@h?prefix="), with("redis://:SECRET@h?prefix=a%20b"), with("redis://:SECRET@h?prefix=%7Ba%7D"), with("redis://:SECRET@h?prefix=") + strings.Repeat("p", 65),
		with("redis://:SECRET@h?min_replicas=x"), with("redis://:SECRET@h?min_replicas=-1"), with("redis://:SECRET@h?min_replicas=1.5"),
		with("redis://:SECRET@h?replica_timeout=1"), with("redis://:SECRET@h?replica_timeout=-1s"), with("redis://:SECRET@h?replica_timeout=2h"), with("redis://:SECRET@h?dial_timeout=0s"), with("redis://:SECRET@h?dial_timeout=soon"),
		with("redis://:SECRET@h?cluster=maybe"), with("redis://:SECRET@h?cluster=1"), with("redis://:SECRET@a,b?cluster=false"),
		with("redis://:SECRET@h?ca_file=x"), with("redis://:SECRET@h?cert_file=x&key_file=y"), with("redis://:SECRET@h?server_name=x"),
		with("rediss://:SECRET@h?cert_file=x"), with("rediss://:SECRET@h?key_file=x"), with("rediss://:SECRET@h?ca_file=") + url.QueryEscape(empty),
		with("redis://:SECRET@h?a=1;b=2"),
	}
	return bad
}

// What is no URL of this store is refused without asking any server, and the
// error says nothing of what may be a password.
func TestInvalidURL(t *testing.T) {
	t.Parallel()
	for _, raw := range badURLs(t) {
		s, err := redis.Open(raw)
		if s != nil {
			s.Close()
		}
		require.ErrorIs(t, err, redis.ErrInvalidURL, "%q", raw)
		noCanary(t, fmt.Sprintf("%v %+v %q %#v", err, err, err, err))
	}
	// A file that is missing is another matter, and its name is none of a secret.
	for _, file := range []string{"ca_file=/nonexistent", "cert_file=/nonexistent&key_file=/nonexistent"} {
		_, err := redis.Open("rediss://:" + url.QueryEscape(canary) + "@h?" + file)
		require.ErrorIs(t, err, os.ErrNotExist)
		noCanary(t, err.Error())
	}
}

// FuzzParseURL: any text is an ErrInvalidURL (or names a file that cannot be
// read), or options that a client can be made of; and no error repeats it.
func FuzzParseURL(f *testing.F) {
	for _, raw := range badURLs(f) {
		f.Add(raw)
	}
	for _, raw := range []string{
		"redis://h", "rediss://u:p@[::1]:1,b:2/3?prefix=x&min_replicas=1&replica_timeout=1s&dial_timeout=1s&server_name=n",
		"redis://:a%40b@h?master_set=m&sentinel_user=u&sentinel_password=p&cluster=false",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if strings.Contains(raw, "_file") {
			return // no files of this machine
		}
		o, opts, err := redis.ParseURL(raw)
		if err != nil {
			require.ErrorIs(t, err, redis.ErrInvalidURL)
			// What may be a password: all between the scheme and the last @.
			if at := strings.LastIndexByte(raw, '@'); at >= 0 {
				secret := raw[:at]
				if i := strings.Index(secret, "://"); i >= 0 {
					secret = secret[i+3:]
				}
				if _, password, ok := strings.Cut(secret, ":"); ok && len(password) > 6 && !strings.Contains(redis.ErrInvalidURL.Error()+usage, password) {
					require.NotContains(t, err.Error(), password)
				}
			}
			return
		}
		require.NotEmpty(t, o.InitAddress)
		for _, addr := range o.InitAddress {
			host, port, err := net.SplitHostPort(addr)
			require.NoError(t, err)
			require.NotEmpty(t, host)
			n, err := strconv.Atoi(port)
			require.NoError(t, err)
			require.True(t, 1 <= n && n <= 65535)
		}
		require.GreaterOrEqual(t, o.SelectDB, 0)
		require.Equal(t, strings.HasPrefix(raw, "rediss:"), o.TLSConfig != nil)
		require.Positive(t, o.Dialer.Timeout)
		require.GreaterOrEqual(t, opts.ReplicaTimeout, time.Duration(0))
	})
}

// usage is what errors say of the form of a URL.
const usage = "redis://[user:password@]host[:port][,...][/database][?parameters]"

// startFake is a server that says what the test wants: f gets a command and
// returns the reply as it stands on the wire.
func startFake(t *testing.T, f func(args []string) string) (addr string) {
	t.Helper()
	return serve(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			args, err := readCommand(r)
			if err != nil {
				return
			}
			if _, err := io.WriteString(c, f(args)); err != nil {
				return
			}
		}
	})
}

func readCommand(r *bufio.Reader) (args []string, err error) {
	number := func(kind byte) (int, error) {
		line, err := r.ReadString('\n')
		if err != nil || line[0] != kind {
			return 0, io.ErrUnexpectedEOF
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := number('*')
	for range n {
		size, err := number('$')
		if err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		args = append(args, string(text[:size]))
	}
	return args, err
}

// A server older than Redis 7 is refused, whatever it can and cannot answer.
func TestOpenRefusesOldServers(t *testing.T) {
	t.Parallel()
	bulk := func(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }
	for name, c := range map[string]struct {
		eval string
		err  error
	}{
		"6.2 knows no shebang": {"-ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'\r\n", redis.ErrVersion},
		"a fork of 6":          {bulk("6.3.4"), redis.ErrVersion},
		"no version":           {bulk(""), redis.ErrVersion},
		"no scripts":           {"-ERR unknown command 'EVAL'\r\n", redis.ErrVersion},
		"7.0":                  {bulk("7.0.0"), nil},
		"7.2 of Valkey":        {bulk("7.2.4"), nil},
		"10":                   {bulk("10.1.2"), nil},
		"loading":              {"-LOADING Redis is loading the dataset in memory\r\n", nil},
		"read-only":            {"-NOREPLICAS Not enough good replicas to write.\r\n", nil},
	} {
		addr := startFake(t, func(args []string) string {
			switch strings.ToUpper(args[0]) {
			case "HELLO":
				return "%3\r\n" + bulk("server") + bulk("redis") + bulk("version") + bulk("6.2.14") + bulk("proto") + ":3\r\n"
			case "EVAL":
				return c.eval
			case "PING":
				return "+PONG\r\n"
			}
			return "-ERR This instance has cluster support disabled\r\n"
		})
		s, err := redis.Open("redis://u:" + url.QueryEscape(canary) + "@" + addr)
		if c.err == nil {
			require.NoError(t, err, name)
			require.NoError(t, s.Close())
			continue
		}
		require.ErrorIs(t, err, c.err, name)
		require.Nil(t, s)
		noCanary(t, err.Error())
	}
}

// What Open cannot reach is an error in time, without the password.
func TestOpenCannotConnect(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	grant(t, server, "locker", rights(t, base))
	paused := redistest.Start(t)
	paused.Pause()
	silent := serve(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	user := "redis://locker:" + url.QueryEscape(canary) + "@"
	for name, c := range map[string]struct {
		url, says string
		within    time.Duration
	}{
		"nothing listens":    {user + "127.0.0.1:" + nowhere, "refused", slack},
		"three times":        {user + "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "refused", slack},
		"no such host":       {user + "nonexistent.invalid?dial_timeout=1s", "nonexistent.invalid", time.Second + slack},
		"wrong password":     {strings.Replace(user, "@", "x@", 1) + server.Addr, "WRONGPASS", slack},
		"no such database":   {user + server.Addr + "/9999", "", slack},
		"silent":             {user + silent + "?dial_timeout=300ms", "", 10*time.Second + slack},
		"paused":             {user + paused.Addr + "?dial_timeout=300ms", "", 10*time.Second + slack},
		"no sentinel":        {user + server.Addr + "?master_set=m&sentinel_password=" + url.QueryEscape(canary), "", slack},
		"no sentinel at all": {user + "127.0.0.1:" + nowhere + "?master_set=m", "refused", slack},
		"TLS to a server without": {
			strings.Replace(user, "redis://", "rediss://", 1) + server.Addr + "?dial_timeout=300ms", "", slack,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			s, err := redis.Open(c.url)
			require.Less(t, time.Since(began), c.within)
			require.Error(t, err)
			require.Nil(t, s)
			require.NotErrorIs(t, err, redis.ErrInvalidURL)
			require.NotErrorIs(t, err, redis.ErrVersion)
			require.Contains(t, err.Error(), c.says)
			noCanary(t, fmt.Sprintf("%v %+v %q %#v", err, err, err, err))
		})
	}
}

// Options that New refuses.
func TestNewRefusesOptions(t *testing.T) {
	t.Parallel()
	_, err := redis.New(nil, nil)
	require.Error(t, err)
	server := redistest.Start(t)
	for _, o := range []redis.Options{
		{Prefix: "a b"}, {Prefix: "a{b"}, {Prefix: "a}b"}, {Prefix: "ä"}, {Prefix: "\x00"}, {Prefix: strings.Repeat("p", 65)},
		{MinReplicas: -1}, {ReplicaTimeout: -1}, {ReplicaTimeout: 2 * time.Hour},
	} {
		_, err := redis.New(server.Client(), &o)
		require.Error(t, err, "%+v", o)
	}
	// The client of New stays open.
	var used sync.WaitGroup
	for _, o := range []*redis.Options{nil, {}, {Prefix: strings.Repeat("p", 64)}} {
		used.Go(func() {
			s, err := redis.New(server.Client(), o)
			if err == nil {
				_, err = s.Acquire(context.Background(), want("a", 1))
			}
			if err != nil {
				t.Error(err)
				return
			}
			s.Close()
		})
	}
	used.Wait()
	require.Equal(t, "PONG", server.MustDo("PING"))
}
