package zookeeper_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// deafProxy stands between a handle and a server. While it is deaf, requests reach
// the server and answers are lost. While its gate is locked, nothing passes.
type deafProxy struct {
	addr string
	deaf atomic.Bool
	gate sync.RWMutex

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
			running.Go(func() { p.copy(server, client, func() bool { return true }) })
			running.Go(func() { p.copy(client, server, func() bool { return !p.deaf.Load() }) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.cut()
		running.Wait()
	})
	return p
}

// copy passes on what passes says, through the gate.
func (p *deafProxy) copy(to, from net.Conn, passes func() bool) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.gate.RLock()
		if passes() {
			_, err = to.Write(buf[:n])
		}
		p.gate.RUnlock()
		if err != nil {
			return
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
