package postgrestest

import (
	"net"
	"testing"
)

// TestPortTaken: a server whose port another server has taken meanwhile does not count
// as started because the other one answers.
func TestPortTaken(t *testing.T) {
	first, second := Start(t), Start(t)
	second.Stop()
	second.Addr = first.Addr
	_, port, _ := net.SplitHostPort(first.Addr)
	second.configure("postgresql.conf", "port="+port)
	if why := second.launch(); why == "" {
		t.Error("it counts as started")
	}
	second.launchAnywhere("postgresql.conf")
	if second.Addr == first.Addr {
		t.Error("it has the port of the other server")
	}
	second.Exec("CREATE DATABASE mine")
	first.Exec("CREATE DATABASE mine")
}
