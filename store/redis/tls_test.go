package redis_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store/redis"
)

// authority is a private certificate authority.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	last int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.sign("ca", func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	})
	return a
}

// sign writes name.crt and name.key.
func (a *authority) sign(name string, change func(*x509.Certificate)) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	a.last++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.last), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	change(template)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	a.write(name+".crt", "CERTIFICATE", der)
	a.write(name+".key", "PRIVATE KEY", keyDER)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return cert, key
}

// write puts a file in its place at once.
func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	require.NoError(a.t, os.WriteFile(a.file(name+".new"), text, 0o600))
	require.NoError(a.t, os.Rename(a.file(name+".new"), a.file(name)))
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// forHost is a certificate of 127.0.0.1 and of a name.
func forHost(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.DNSNames, c.IPAddresses = []string{name}, []net.IP{net.IPv4(127, 0, 0, 1)}
	}
}

func expired(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
}

// startTLS starts a server that listens for TLS at the address it returns.
func startTLS(t *testing.T, a *authority, cert string, config ...string) (*redistest.Server, string) {
	t.Helper()
	return redistest.StartTLS(t, append([]string{
		"tls-cert-file " + a.file(cert+".crt"), "tls-key-file " + a.file(cert+".key"), "tls-ca-cert-file " + a.file("ca.crt"),
	}, config...)...)
}

// TLS with a private authority: the right name gets through; what is not in
// order is an error that says what.
func TestOpenTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.sign("server", forHost("redis.example"))
	a.sign("elsewhere", func(c *x509.Certificate) { c.DNSNames = []string{"elsewhere.example"} })
	a.sign("old", func(c *x509.Certificate) { forHost("redis.example")(c); expired(c) })
	a.sign("client", func(*x509.Certificate) {})
	a.sign("oldclient", expired)
	_, addr := startTLS(t, a, "server", "tls-auth-clients no")
	_, strict := startTLS(t, a, "server")
	_, elsewhere := startTLS(t, a, "elsewhere", "tls-auth-clients no")
	_, old := startTLS(t, a, "old", "tls-auth-clients no")
	ca := "?ca_file=" + url.QueryEscape(a.file("ca.crt"))
	client := "&cert_file=" + url.QueryEscape(a.file("client.crt")) + "&key_file=" + url.QueryEscape(a.file("client.key"))
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

// A client certificate is replaced on disk. It is used by the next connection,
// of a handle that was open all the time: holds go on.
func TestFault14CertificateRotated(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.sign("server", forHost("redis.example"))
	a.sign("client", func(c *x509.Certificate) { c.Subject.CommonName = "first" })
	server, addr := startTLS(t, a, "server")
	u := "rediss://" + addr + "?ca_file=" + url.QueryEscape(a.file("ca.crt")) +
		"&cert_file=" + url.QueryEscape(a.file("client.crt")) + "&key_file=" + url.QueryEscape(a.file("client.key"))
	p := startProgram(t, u, withTTL(3*lease))
	h := p.take("a")

	kick := func() { server.MustDo("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") }
	a.sign("client", expired)
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
	a.sign("client", func(c *x509.Certificate) { c.Subject.CommonName = "second" })
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
