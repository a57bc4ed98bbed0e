package etcd

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/certtest"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
)

// serveTLS listens for TLS on the host and passes what comes to the member. It returns the address. The
// certificate has the name of its file.
func serveTLS(t *testing.T, a *certtest.Authority, host, cert string, m *etcdtest.Member) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(a.File(cert+".crt"), a.File(cert+".key"))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}
	l, err := tls.Listen("tcp", net.JoinHostPort(host, "0"), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer from.Close()
				to, err := net.Dial("tcp", m.Endpoint)
				if err != nil {
					return
				}
				go func() {
					io.Copy(to, from)
					to.Close()
				}()
				io.Copy(from, to)
			}()
		}
	}()
	return l.Addr().String()
}

// opens opens the URL and locks, and returns the error of the first that fails.
func opens(t *testing.T, url string) error {
	t.Helper()
	s, err := Open(url)
	if err != nil {
		return err
	}
	defer s.Close()
	return lockBy(t, s)
}

func lockBy(t *testing.T, s *Store) error {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	r := store.Request{Name: "a", Owner: "o", ID: "00000000000000000000000000000001", TTL: time.Minute, WaitTTL: time.Minute, Tokens: 1}
	_, err := s.Acquire(ctx, r)
	return err
}

// unverified fails the test unless the certificate of the URL's members is refused, with an error that says that.
func unverified(t *testing.T, url, says string) {
	t.Helper()
	err := opens(t, url+"&dial_timeout=1s")
	if err == nil || !strings.Contains(err.Error(), "failed to verify certificate") || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want %q", err, says)
	}
}

// Each member has a certificate that names that member alone. Each is reached, also as the last one left.
func TestTLSNameOfEachMember(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 3)
	a := certtest.New(t)
	hosts := []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}
	var members []string
	for i, h := range hosts {
		a.Sign(h, certtest.For(h))
		_, port, _ := net.SplitHostPort(serveTLS(t, a, h, h, c.Members[i]))
		members = append(members, net.JoinHostPort(h, port))
	}
	ca := "/?ca_file=" + url.QueryEscape(a.File("ca.crt"))
	s, err := Open("etcd://" + strings.Join(members, ",") + ca)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range members {
		s.client.SetEndpoints(members[i])
		locktest.Poll(t, "a lock by "+members[i], locktest.Patience, func() bool { return lockBy(t, s) == nil })
	}
	other := serveTLS(t, a, hosts[1], hosts[0], c.Members[0])
	unverified(t, "etcd://"+other+","+other+ca, "not "+hosts[1])
}

// The name that is given is asked of all members, whatever their hosts are.
func TestTLSNameGiven(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 1)
	a := certtest.New(t)
	a.Sign("given", certtest.For("given.example"))
	a.Sign("own", certtest.For("127.0.0.1"))
	ca := "/?ca_file=" + url.QueryEscape(a.File("ca.crt")) + "&server_name=given.example"
	given, own := serveTLS(t, a, "127.0.0.1", "given", c.Members[0]), serveTLS(t, a, "127.0.0.1", "own", c.Members[0])
	if err := opens(t, "etcd://"+given+ca); err != nil {
		t.Error(err)
	}
	unverified(t, "etcd://"+own+ca, "given.example")
}

// A forged record may lead to a host with a certificate of its own, so that of each member has to name the domain.
func TestTLSNameBySRV(t *testing.T) {
	c := etcdtest.Start(t, 1)
	a := certtest.New(t)
	a.Sign("domain", certtest.For("example.com"))
	a.Sign("own", certtest.For("127.0.0.1"))
	before := lookUp
	defer func() { lookUp = before }()
	var member string
	lookUp = func(_ context.Context, service, _, _ string) (string, []*net.SRV, error) {
		if service != "etcd-client-ssl" {
			t.Errorf("asked for %s", service)
		}
		host, port, _ := net.SplitHostPort(member)
		n, err := strconv.Atoi(port)
		return "", []*net.SRV{{Target: host + ".", Port: uint16(n)}}, err
	}
	srv := "etcd+srv://example.com/?ca_file=" + url.QueryEscape(a.File("ca.crt"))
	member = serveTLS(t, a, "127.0.0.1", "domain", c.Members[0])
	if err := opens(t, srv); err != nil {
		t.Error(err)
	}
	unverified(t, srv+"&server_name=127.0.0.1", "certificate for 127.0.0.1")
	member = serveTLS(t, a, "127.0.0.1", "own", c.Members[0])
	unverified(t, srv, "example.com")
	if err := opens(t, srv+"&server_name=127.0.0.1"); err != nil {
		t.Error(err)
	}
}
