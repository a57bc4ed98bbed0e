package etcd

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// unansweredFor is how long a call has to have waited to say anything about its connection.
const unansweredFor = 200 * time.Millisecond

// links are the connections of a client to the members. One is closed when a call on it was not answered and
// nothing else has come meanwhile, so that the next calls and the watches go to other members. Left alone, gRPC
// finds out after twelve seconds that a member is frozen, and until then gives it every third call of a client of
// three: places and holds are lost by that.
type links struct {
	mu sync.Mutex
	m  map[string]*link // by ends
}

// ends names a connection. Linux may give one local address to connections to two members.
func ends(local, remote net.Addr) string { return local.String() + " " + remote.String() }

type link struct {
	net.Conn
	heard atomic.Int64 // when something came last, in nanoseconds; negative once it is closed
}

// options make a client use them.
func (ls *links) options() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithContextDialer(ls.dial), grpc.WithStatsHandler(ls)}
}

func (ls *links) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return ls.add(conn), nil
}

func (ls *links) add(conn net.Conn) *link {
	l := &link{Conn: conn}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for old := range ls.m { // a link does not know its map: closed ones go here
		if ls.m[old].heard.Load() < 0 {
			delete(ls.m, old)
		}
	}
	ls.m[ends(conn.LocalAddr(), conn.RemoteAddr())] = l
	return l
}

func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if before := l.heard.Load(); n > 0 && before >= 0 { // closed meanwhile: it stays so
		l.heard.CompareAndSwap(before, time.Now().UnixNano())
	}
	return n, err
}

func (l *link) Close() error {
	l.heard.Store(-1)
	return l.Conn.Close()
}

// call is what is known of one that is under way, in its context.
type call struct {
	mu    sync.Mutex
	began time.Time
	link  string // its ends; "" before it is sent
}

type callKey struct{}

// TagRPC implements [stats.Handler].
func (ls *links) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, callKey{}, new(call))
}

// HandleRPC implements [stats.Handler].
func (ls *links) HandleRPC(ctx context.Context, s stats.RPCStats) {
	c := ctx.Value(callKey{}).(*call)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s := s.(type) {
	case *stats.OutHeader:
		c.began, c.link = time.Now(), ends(s.LocalAddr, s.RemoteAddr)
	case *stats.End:
		if status.Code(s.Error) != codes.DeadlineExceeded || c.link == "" || time.Since(c.began) < unansweredFor {
			return
		}
		ls.mu.Lock()
		l := ls.m[c.link]
		ls.mu.Unlock()
		if l != nil && l.heard.Load() < c.began.UnixNano() {
			l.Close()
		}
	}
}

// TagConn implements [stats.Handler].
func (ls *links) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements [stats.Handler].
func (ls *links) HandleConn(context.Context, stats.ConnStats) {}
