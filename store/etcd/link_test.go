package etcd

import (
	"net"
	"testing"
)

// lateConn has one more byte to read after it was closed.
type lateConn struct{ net.Conn }

func (lateConn) Read([]byte) (int, error) { return 1, nil }
func (lateConn) Close() error             { return nil }

// TestLinkStaysClosed: what is read while a link is closed does not keep it in the map.
func TestLinkStaysClosed(t *testing.T) {
	l := &link{Conn: lateConn{}}
	l.Read(nil)
	if l.heard.Load() <= 0 {
		t.Error("nothing was heard")
	}
	l.Close()
	l.Read(nil)
	if l.heard.Load() >= 0 {
		t.Error("a closed link is open again")
	}
}
