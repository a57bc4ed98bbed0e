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

// inVainAfter is how long a call has to have waited to say anything about its
// connection.
const inVainAfter = 200 * time.Millisecond

// links are the connections of a client to the members. One is closed when a
// call has waited in vain on it and nothing else has come meanwhile, so that the
// next calls and the watches go to other members. Left alone, gRPC finds out
// after twelve seconds that a member is frozen, and until then gives it every
// third call of a client of three: places and holds are lost by that.
type links struct {
	mu sync.Mutex
	m  map[string]*link // by local address
}

type link struct {
	net.Conn
	ls    *links
	heard atomic.Pointer[time.Time]
}

func newLinks() *links { return &links{m: make(map[string]*link)} }

// options make a client use them.
func (ls *links) options() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithContextDialer(ls.dial), grpc.WithStatsHandler(ls)}
}

func (ls *links) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	l := &link{Conn: conn, ls: ls}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.m[conn.LocalAddr().String()] = l
	return l, nil
}

func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if n > 0 {
		now := time.Now()
		l.heard.Store(&now)
	}
	return n, err
}

func (l *link) Close() error {
	l.ls.mu.Lock()
	if addr := l.LocalAddr().String(); l.ls.m[addr] == l {
		delete(l.ls.m, addr)
	}
	l.ls.mu.Unlock()
	return l.Conn.Close()
}

// inVain closes the link on which a call since then has waited in vain, unless
// anything came on it.
func (ls *links) inVain(addr string, since time.Time) {
	if time.Since(since) < inVainAfter {
		return
	}
	ls.mu.Lock()
	l := ls.m[addr]
	ls.mu.Unlock()
	if l == nil {
		return
	}
	if heard := l.heard.Load(); heard == nil || heard.Before(since) {
		l.Close()
	}
}

// call is what is known of one that is under way, in its context.
type call struct {
	mu    sync.Mutex
	began time.Time
	addr  string
}

type callKey struct{}

// TagRPC implements [stats.Handler].
func (ls *links) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, callKey{}, new(call))
}

// HandleRPC implements [stats.Handler].
func (ls *links) HandleRPC(ctx context.Context, s stats.RPCStats) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return
	}
	switch s := s.(type) {
	case *stats.OutHeader:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.began, c.addr = time.Now(), s.LocalAddr.String()
	case *stats.End:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.addr != "" && status.Code(s.Error) == codes.DeadlineExceeded {
			ls.inVain(c.addr, c.began)
		}
	}
}

// TagConn implements [stats.Handler].
func (ls *links) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements [stats.Handler].
func (ls *links) HandleConn(context.Context, stats.ConnStats) {}
