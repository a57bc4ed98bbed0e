package postgrestest

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// Proxy stands between clients and a server. Its methods may be called
// concurrently.
type Proxy struct {
	Addr string // "127.0.0.1:port"

	target string
	mu     sync.Mutex
	word   []byte
	links  map[net.Conn]bool
}

// StartProxy starts a proxy on a free port. It ends with the test.
func (s *Server) StartProxy(t testing.TB) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("postgrestest: the proxy cannot listen: %v", err)
	}
	p := &Proxy{Addr: l.Addr().String(), target: s.Addr, links: make(map[net.Conn]bool)}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.link(client) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.Cut()
		running.Wait()
	})
	return p
}

// SwallowAnswerTo passes the next message with that text on to the server, drops
// the answer and closes the connection when the server has answered.
func (p *Proxy) SwallowAnswerTo(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.word = []byte(text)
}

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.links {
		c.Close()
	}
}

// link passes bytes on until either side closes.
func (p *Proxy) link(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.links[client], p.links[server] = true, true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.links, client)
		delete(p.links, server)
		p.mu.Unlock()
	}()
	var swallow sync.Once
	dropped := make(chan struct{})
	go func() {
		defer client.Close()
		b := make([]byte, 1<<16)
		for {
			n, err := server.Read(b)
			if err != nil {
				return
			}
			select {
			case <-dropped:
				return // the server has answered, so it is done
			default:
			}
			if _, err := client.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	b := make([]byte, 1<<16)
	for {
		n, err := client.Read(b)
		if err != nil {
			return
		}
		p.mu.Lock()
		found := p.word != nil && bytes.Contains(b[:n], p.word)
		if found {
			p.word = nil
		}
		p.mu.Unlock()
		if found {
			swallow.Do(func() { close(dropped) })
		}
		if _, err := server.Write(b[:n]); err != nil {
			return
		}
	}
}
