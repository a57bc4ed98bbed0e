// Package proxytest is a proxy between clients and a server that loses what goes
// through it. It knows bytes only.
package proxytest

import (
	"net"
	"sync"
	"testing"
)

// Proxy stands between clients and one server. All methods may be called
// concurrently.
type Proxy struct {
	Addr string // "127.0.0.1:port"

	listener net.Listener
	serve    func(*Link)
	running  sync.WaitGroup

	mu     sync.Mutex
	target string
	closed bool
	links  map[*Link]bool
	dark   bool
}

// Start starts a proxy on a free port of 127.0.0.1 in front of the server at
// target ("127.0.0.1:port"), which need not run: without it the proxy closes
// connections at once. It ends with the test.
func Start(t testing.TB, target string) *Proxy {
	t.Helper()
	return StartWith(t, target, func(l *Link) { l.Forward(Write, Write) })
}

// StartWith is Start with a function that forwards what a link gets, and returns when
// that is over. It uses Link.Loses and Link.Cut for that, or Link.Forward, which does.
func StartWith(t testing.TB, target string, serve func(*Link)) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("proxytest: the proxy cannot listen: %v", err)
	}
	p := &Proxy{Addr: l.Addr().String(), listener: l, serve: serve, target: target, links: map[*Link]bool{}}
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
		l := &Link{Client: client, Gone: make(chan struct{}), p: p}
		p.mu.Lock()
		closed, dark := p.closed, p.dark
		p.links[l] = true
		l.lost = dark
		p.mu.Unlock()
		switch {
		case closed:
			l.Cut()
		case !dark: // a lost one stays open, and nobody listens
			p.running.Go(l.run)
		}
	}
}

// Blackhole breaks the wire: while it is on, all that is sent in either
// direction is lost, no end of a connection learns that the other has closed it,
// and new connections are accepted but lead nowhere. When it goes off, it closes
// the connections that have lost something, as TCP would not go on behind a gap;
// the others live on.
func (p *Proxy) Blackhole(on bool) {
	p.mu.Lock()
	p.dark = on
	p.mu.Unlock()
	if !on {
		p.cut(func(l *Link) bool { return l.lost })
	}
}

// Retarget has another server stand behind the proxy from now on, and closes all
// present connections: what a client sees of a failover.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.Cut()
}

// Cut closes all present connections, on both sides. New ones are served.
func (p *Proxy) Cut() { p.cut(func(*Link) bool { return true }) }

// cut closes the connections that are chosen.
func (p *Proxy) cut(chosen func(*Link) bool) {
	p.mu.Lock()
	var cut []*Link
	for l := range p.links {
		if chosen(l) {
			cut = append(cut, l)
		}
	}
	p.mu.Unlock()
	for _, l := range cut {
		l.Cut()
	}
}
