package porttest

import (
	"net"
	"testing"
)

func TestFreeAddrs(t *testing.T) {
	seen := make(map[string]bool)
	for _, addr := range FreeAddrs(t, 100) {
		if seen[addr] {
			t.Errorf("%s comes twice", addr)
		}
		seen[addr] = true
		l, err := net.Listen("tcp", "127.0.0.1:"+Port(addr))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
}
