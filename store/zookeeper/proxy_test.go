package zookeeper_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// deafProxy stands between a handle and a server. While it is deaf, requests reach
// the server and answers are lost.
type deafProxy struct {
	addr string
	deaf atomic.Bool

	mu    sync.Mutex
	conns []net.Conn
}

func startDeafProxy(t testing.TB, target string) *deafProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &deafProxy{addr: l.Addr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, client, server)
			p.mu.Unlock()
			running.Go(func() { io.Copy(server, client) })
			running.Go(func() { p.answer(client, server) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.cut()
		running.Wait()
	})
	return p
}

// answer passes answers on, or drops them.
func (p *deafProxy) answer(client, server net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			client.Close()
			return
		}
		if !p.deaf.Load() {
			client.Write(buf[:n])
		}
	}
}

// cut closes all connections.
func (p *deafProxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}
