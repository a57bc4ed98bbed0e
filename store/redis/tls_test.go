package redis_test

import (
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/certtest"
	"github.com/dlock-go/dlock/internal/porttest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store/redis"
)

// startTLS starts a server that listens for TLS at the address it returns.
func startTLS(t *testing.T, a *certtest.Authority, cert string, config ...string) (*redistest.Server, string) {
	t.Helper()
	return redistest.StartTLS(t, append([]string{
		"tls-cert-file " + a.File(cert+".crt"), "tls-key-file " + a.File(cert+".key"), "tls-ca-cert-file " + a.File("ca.crt"),
	}, config...)...)
}

// TLS with a private authority: the right name gets through; what is not in
// order is an error that says what.
func TestOpenTLS(t *testing.T) {
	t.Parallel()
	a := certtest.New(t)
	a.Sign("server", certtest.For("127.0.0.1", "redis.example"))
	a.Sign("elsewhere", certtest.For("elsewhere.example"))
	a.Sign("old", certtest.For("127.0.0.1"), certtest.Expired)
	a.Sign("client")
	a.Sign("oldclient", certtest.Expired)
	_, addr := startTLS(t, a, "server", "tls-auth-clients no")
	_, strict := startTLS(t, a, "server")
	_, elsewhere := startTLS(t, a, "elsewhere", "tls-auth-clients no")
	_, old := startTLS(t, a, "old", "tls-auth-clients no")
	ca := "?ca_file=" + url.QueryEscape(a.File("ca.crt"))
	client := "&cert_file=" + url.QueryEscape(a.File("client.crt")) + "&key_file=" + url.QueryEscape(a.File("client.key"))
	oldClient := strings.ReplaceAll(client, "client.", "oldclient.")
	for name, c := range map[string]struct{ url, says string }{
		"right address":         {addr + ca, ""},
		"right name":            {addr + ca + "&server_name=redis.example", ""},
		"client certificate":    {strict + ca + client, ""},
		"not needed":            {addr + ca + client, ""},
		"other name asked for":  {addr + ca + "&server_name=other.example", "not other.example"},
		"other name in it":      {elsewhere + ca, "127.0.0.1"},
		"its name asked for":    {elsewhere + ca + "&server_name=elsewhere.example", ""},
		"unknown authority":     {addr, "unknown authority"},
		"expired":               {old + ca, "expired"},
		"no client certificate": {strict + ca, "certificate|reset|broken pipe|EOF"},
		"expired of the client": {strict + ca + oldClient, "certificate|reset|broken pipe|EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			s, err := redis.Open("rediss://" + c.url)
			require.Less(t, time.Since(began), 3*slack)
			if c.says == "" {
				require.NoError(t, err)
				defer s.Close()
				_, err := s.Acquire(bounded(t), want(name, 1))
				require.NoError(t, err)
				return
			}
			require.Regexp(t, c.says, err) // who is refused may only see the connection end
		})
	}
}

// Each node of a cluster has a certificate of its own, which names that node alone. All are
// reached. One that has the certificate of another is not, and the error says why.
func TestTLSNameOfEachNode(t *testing.T) {
	t.Parallel()
	hosts := []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}
	a := certtest.New(t)
	for _, h := range hosts {
		a.Sign(h, certtest.For(h))
	}
	servers := redistest.StartCluster(t, false, "bind "+strings.Join(hosts, " "))
	owners := map[string]*redistest.Server{}
	for i := range 32 { // some of each node
		name := fmt.Sprint(i)
		owners[name] = servers.Master(redis.Slot(redis.LockKey(name)))
	}
	ports := porttest.FreeAddrs(t, len(hosts))
	for i, s := range servers.Nodes {
		ports[i] = porttest.Port(ports[i])
		s.MustDo("CONFIG", "SET", "tls-cert-file", a.File(hosts[i]+".crt"), "tls-key-file", a.File(hosts[i]+".key"),
			"tls-ca-cert-file", a.File("ca.crt"), "tls-auth-clients", "no", "tls-port", ports[i],
			"cluster-announce-port", ports[i], "cluster-announce-hostname", hosts[i], "cluster-preferred-endpoint-type", "hostname")
	}
	for _, s := range servers.Nodes {
		until(t, "the node tells the new addresses of all", func() bool {
			shards := s.MustDo("CLUSTER", "SLOTS")
			for i := range hosts {
				if !strings.Contains(shards, hosts[i]+"\n"+ports[i]) {
					return false
				}
			}
			return true
		})
	}
	ca := "?ca_file=" + url.QueryEscape(a.File("ca.crt"))
	lockAll := func(url string) (failed []string) {
		s, err := redis.Open(url)
		if err != nil { // by the node that was asked for its version
			return []string{err.Error()}
		}
		defer s.Close()
		for name, owner := range owners {
			if _, err := s.Acquire(bounded(t), want(name, 1)); err != nil {
				require.Same(t, servers.Nodes[1], owner, err)
				failed = append(failed, err.Error())
				continue
			}
			require.NoError(t, s.Release(bounded(t), of(want(name, 1))))
		}
		return failed
	}
	one := "rediss://" + net.JoinHostPort(hosts[0], ports[0]) + ca
	all := "rediss://"
	for i, h := range hosts {
		all += net.JoinHostPort(h, ports[i]) + ","
	}
	all = strings.TrimSuffix(all, ",") + ca
	require.Empty(t, lockAll(one))
	require.Empty(t, lockAll(all))

	servers.Nodes[1].MustDo("CONFIG", "SET", "tls-cert-file", a.File(hosts[2]+".crt"), "tls-key-file", a.File(hosts[2]+".key"))
	failed := lockAll(one)
	require.NotEmpty(t, failed)
	for _, text := range failed {
		require.Contains(t, text, "certificate is valid for 127.0.0.3, not 127.0.0.2")
	}
}

// A client certificate is replaced on disk. It is used by the next connection,
// of a handle that was open all the time: holds go on.
func TestFault14CertificateRotated(t *testing.T) {
	t.Parallel()
	a := certtest.New(t)
	a.Sign("server", certtest.For("127.0.0.1", "redis.example"))
	a.Sign("client", func(c *x509.Certificate) { c.Subject.CommonName = "first" })
	server, addr := startTLS(t, a, "server")
	u := "rediss://" + addr + "?ca_file=" + url.QueryEscape(a.File("ca.crt")) +
		"&cert_file=" + url.QueryEscape(a.File("client.crt")) + "&key_file=" + url.QueryEscape(a.File("client.key"))
	p := startProgram(t, u, withTTL(3*lease))
	h := p.take("a")

	kick := func() { server.MustDo("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") }
	a.Sign("client", certtest.Expired)
	kick()
	until(t, "the old connection has ended", func() bool {
		_, err := p.store.Inspect(bounded(t), "a")
		return err != nil
	})
	for range 5 {
		_, err := p.store.Inspect(bounded(t), "a")
		require.Error(t, err, "the expired certificate is not used")
	}
	require.NoError(t, h.Err())
	a.Sign("client", func(c *x509.Certificate) { c.Subject.CommonName = "second" })
	until(t, "the new certificate is used", func() bool {
		_, err := p.store.Inspect(bounded(t), "a")
		return err == nil
	})
	kept(t, 3*lease, h)
	require.NoError(t, h.Unlock())
}

// A server accepts connections and never answers the greeting of TLS: Open
// gives up in time.
func TestFault14HandshakeStalls(t *testing.T) {
	t.Parallel()
	addr := serve(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	began := time.Now()
	_, err := redis.Open("rediss://" + addr + "?dial_timeout=300ms")
	require.Error(t, err)
	require.Less(t, time.Since(began), 300*time.Millisecond+slack)
}
