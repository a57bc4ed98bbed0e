// Package porttest finds free ports for the servers that tests start.
package porttest

import (
	"net"
	"testing"
)

// FreeAddrs returns n different addresses "127.0.0.1:port" that were free a moment ago. Another program may
// bind one before the server does, so the caller tries again with others.
func FreeAddrs(t testing.TB, n int) (addrs []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatalf("porttest: no free port: %v", err)
		}
		defer l.Close() // at the end, so that no address comes twice
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// Port is the port of an address.
func Port(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}
