package etcdtest

import (
	"net"
	"sync"
	"testing"
)

// Proxy stands between clients and one member. It knows bytes only. All methods
// may be called concurrently.
type Proxy struct {
	Addr string // "127.0.0.1:port"

	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	links  map[*link]bool
	dark   bool
}

// link is one connection of a client through a proxy.
type link struct {
	p      *Proxy
	client net.Conn
	lost   bool // something was lost in a blackhole; guarded by p.mu

	gone chan struct{} // closed by cut

	mu     sync.Mutex
	server net.Conn // nil: not connected yet
	cutOff bool
}

// StartProxy starts a proxy on a free port of 127.0.0.1 in front of the member
// at target (its Endpoint), which need not run: without it the proxy closes
// connections at once. It ends with the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("etcdtest: the proxy cannot listen: %v", err)
	}
	p := &Proxy{Addr: l.Addr().String(), target: target, listener: l, links: map[*link]bool{}}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.listener.Close()
	p.Cut()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		l := &link{p: p, client: client, gone: make(chan struct{})}
		p.mu.Lock()
		closed, dark := p.closed, p.dark
		p.links[l] = true
		l.lost = dark
		p.mu.Unlock()
		switch {
		case closed:
			l.cut()
		case !dark: // a lost one stays open, and nobody listens
			p.running.Go(l.serve)
		}
	}
}

// URL is "etcd://127.0.0.1:port/".
func (p *Proxy) URL() string { return "etcd://" + p.Addr + "/" }

// Blackhole breaks the wire: while it is on, all that is sent in either
// direction is lost, no end of a connection learns that the other has closed it,
// and new connections are accepted but lead nowhere. When it goes off, it closes
// the connections that have lost something, as TCP would not go on behind a gap;
// the others live on.
func (p *Proxy) Blackhole(on bool) {
	p.mu.Lock()
	p.dark = on
	var cut []*link
	for l := range p.links {
		if !on && l.lost {
			cut = append(cut, l)
		}
	}
	p.mu.Unlock()
	for _, l := range cut {
		l.cut()
	}
}

// Cut closes all present connections, on both sides. New ones are served.
func (p *Proxy) Cut() {
	p.mu.Lock()
	var cut []*link
	for l := range p.links {
		cut = append(cut, l)
	}
	p.mu.Unlock()
	for _, l := range cut {
		l.cut()
	}
}

// loses reports whether what the link is about to forward is lost.
func (p *Proxy) loses(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dark {
		l.lost = true
	}
	return l.lost
}

// serve connects to the server and copies until the link is cut or both ends
// have closed.
func (l *link) serve() {
	defer l.cut()
	server, err := net.Dial("tcp", l.p.target)
	if err != nil {
		return
	}
	l.mu.Lock()
	l.server = server
	cutOff := l.cutOff
	l.mu.Unlock()
	if cutOff {
		server.Close()
		return
	}
	var copying sync.WaitGroup
	copying.Go(func() { l.copy(server, l.client) })
	copying.Go(func() { l.copy(l.client, server) })
	copying.Wait()
	// Until the blackhole ends the ends of the connection must not notice.
	if l.p.loses(l) {
		<-l.gone
	}
}

func (l *link) copy(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if l.p.loses(l) {
			if err != nil {
				return
			}
			continue
		}
		if _, failed := to.Write(buf[:n]); failed != nil {
			return // who reads from there sees it too
		}
		if err != nil {
			// What was sent before shall still arrive, so no cut.
			to.(*net.TCPConn).CloseWrite()
			return
		}
	}
}

// cut closes both connections.
func (l *link) cut() {
	l.p.mu.Lock()
	delete(l.p.links, l)
	l.p.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cutOff {
		return
	}
	l.cutOff = true
	close(l.gone)
	l.client.Close()
	if l.server != nil {
		l.server.Close()
	}
}
