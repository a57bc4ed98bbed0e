package etcd

import (
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
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

// idleConn says nothing, and only has addresses.
type idleConn struct {
	net.Conn
	local, remote *net.TCPAddr
}

func (c idleConn) LocalAddr() net.Addr  { return c.local }
func (c idleConn) RemoteAddr() net.Addr { return c.remote }
func (idleConn) Close() error           { return nil }

// Two members are reached from one local address. A call that one does not answer closes the connection to that one.
func TestLinksWithOneLocalAddress(t *testing.T) {
	ls := &links{m: make(map[string]*link)}
	local := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 40000}
	var all []*link
	for _, member := range []byte{2, 3} {
		all = append(all, ls.add(idleConn{local: local, remote: &net.TCPAddr{IP: net.IPv4(10, 0, 0, member), Port: 2379}}))
	}
	for n, l := range all {
		ctx := ls.TagRPC(t.Context(), nil)
		ls.HandleRPC(ctx, &stats.OutHeader{LocalAddr: local, RemoteAddr: l.RemoteAddr()})
		ctx.Value(callKey{}).(*call).began = time.Now().Add(-unansweredFor)
		ls.HandleRPC(ctx, &stats.End{Error: status.Error(codes.DeadlineExceeded, "")})
		for other, l := range all {
			if closed := l.heard.Load() < 0; closed != (other <= n) {
				t.Errorf("after call %d the connection %d is closed: %v", n, other, closed)
			}
		}
	}
}
