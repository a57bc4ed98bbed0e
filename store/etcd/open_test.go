package etcd

import (
	"context"
	"errors"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
)

// The members are those that the SRV records of the domain name.
func TestMembersBySRV(t *testing.T) {
	c := etcdtest.Start(t, 1)
	host, text, err := net.SplitHostPort(c.Members[0].Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	before := lookUp
	defer func() { lookUp = before }()
	var asked []string
	records := []*net.SRV{{Target: host + ".", Port: uint16(port)}}
	lookUp = func(_ context.Context, service, proto, name string) (string, []*net.SRV, error) {
		asked = append(asked, service, proto, name)
		return "", records, nil
	}
	s, err := Open("etcd+srv://example.com/locks")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if len(asked) != 3 || asked[0] != "etcd-client" || asked[1] != "tcp" || asked[2] != "example.com" {
		t.Errorf("asked for %q", asked)
	}
	if _, err := s.Inspect(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	records = nil
	if _, err := Open("etcd+srv://example.com/"); err == nil {
		t.Error("opened without a member")
	}
	if _, err := Open("etcd+srv://a.example.com,b.example.com/"); !errors.Is(err, ErrInvalidURL) {
		t.Errorf("two domains: %v", err)
	}
}

// A handle that was given one member finds the others, and goes on without the first.
func TestMembersBySync(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 3)
	s, err := Open("etcd://" + c.Members[0].Endpoint + "/?sync=100ms")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	locktest.Poll(t, "three endpoints", locktest.Patience, func() bool { return len(s.client.Endpoints()) == 3 })
	c.Members[0].Kill()
	locktest.Poll(t, "a lock without the first member", locktest.Patience, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g, err := s.Acquire(ctx, store.Request{Name: "a", Owner: "o", ID: "00000000000000000000000000000001", TTL: time.Minute, WaitTTL: time.Minute, Tokens: 1})
		return err == nil && g.Held
	})
}
