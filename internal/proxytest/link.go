package proxytest

import (
	"net"
	"sync"
)

// Link is one connection of a client through a proxy.
type Link struct {
	Client, Server net.Conn
	Gone           chan struct{} // closed by Cut

	p    *Proxy
	lost bool // something was lost in a blackhole; guarded by p.mu

	mu     sync.Mutex // guards Server until the link is served
	cutOff bool
}

// run connects to the server and serves the link until it is cut or both ends
// have closed.
func (l *Link) run() {
	defer l.Cut()
	l.p.mu.Lock()
	target := l.p.target
	l.p.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	l.mu.Lock()
	l.Server = server
	cutOff := l.cutOff
	l.mu.Unlock()
	if cutOff {
		server.Close()
		return
	}
	l.p.serve(l)
	// Until the blackhole ends the ends of the connection must not notice.
	if l.Loses() {
		<-l.Gone
	}
}

// Loses reports whether what the link is about to forward is lost.
func (l *Link) Loses() bool {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.p.dark {
		l.lost = true
	}
	return l.lost
}

// Write forwards what has arrived, as it is.
func Write(to net.Conn, arrived []byte) error {
	_, err := to.Write(arrived)
	return err
}

// Forward copies until both ends have closed. It calls toServer and toClient for all
// that has arrived and is not lost.
func (l *Link) Forward(toServer, toClient func(to net.Conn, arrived []byte) error) {
	var copying sync.WaitGroup
	copying.Go(func() { l.copy(l.Server, l.Client, toServer) })
	copying.Go(func() { l.copy(l.Client, l.Server, toClient) })
	copying.Wait()
}

func (l *Link) copy(to, from net.Conn, write func(net.Conn, []byte) error) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if l.Loses() {
			if err != nil {
				return
			}
			continue
		}
		if n > 0 && write(to, buf[:n]) != nil {
			return // who reads from there sees it too
		}
		if err != nil {
			// What was sent before shall still arrive, so no cut.
			to.(*net.TCPConn).CloseWrite()
			return
		}
	}
}

// Cut closes both connections.
func (l *Link) Cut() {
	l.p.mu.Lock()
	delete(l.p.links, l)
	l.p.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cutOff {
		return
	}
	l.cutOff = true
	close(l.Gone)
	l.Client.Close()
	if l.Server != nil {
		l.Server.Close()
	}
}
