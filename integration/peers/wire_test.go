package peers

import (
	"net"
	"sync"
	"testing"
	"time"
)

// wire stands between one client and a server. It knows bytes only, so that it
// fails in the same way for all libraries.
type wire struct {
	addr     string // "127.0.0.1:port"
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	state state
	links map[*link]bool
}

// state is what a wire does.
type state int

const (
	whole    state = iota
	dark           // all is lost, nothing is closed, new connections lead nowhere
	mute           // what the server says is lost
	cutReply       // the next thing the server says is lost, and with it all connections; new ones are served
	down           // there are no connections, and new ones are closed at once
	closed         // as down, for good
)

// applied is how long a server gets to apply a request before its connection is
// cut: what it says first may be a frame of its protocol, not the answer.
const applied = 5 * time.Millisecond

// link is one connection of the client.
type link struct {
	w              *wire
	client, server net.Conn
	lost           bool // something was lost; guarded by w.mu
	gone           chan struct{}
	cut            func() // closes both connections
}

func newWire(t testing.TB, target string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{addr: l.Addr().String(), target: target, listener: l, links: map[*link]bool{}}
	w.running.Go(w.accept)
	t.Cleanup(w.close)
	return w
}

func (w *wire) close() {
	w.set(closed)
	w.listener.Close()
	w.running.Wait()
}

// set changes what the wire does. A wire that is whole again cuts connections
// that have lost something: TCP would not go on behind a gap.
func (w *wire) set(s state) {
	w.mu.Lock()
	if w.state != closed {
		w.state = s
	}
	var cut []*link
	for l := range w.links {
		if s >= down || s == whole && l.lost {
			cut = append(cut, l)
		}
	}
	w.mu.Unlock()
	for _, l := range cut {
		l.cut()
	}
}

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.target)
		if err != nil {
			client.Close()
			continue
		}
		l := &link{w: w, client: client, server: server, gone: make(chan struct{})}
		l.cut = sync.OnceFunc(func() {
			w.mu.Lock()
			delete(w.links, l)
			w.mu.Unlock()
			close(l.gone)
			client.Close()
			server.Close()
		})
		w.mu.Lock()
		w.links[l] = true
		refused := w.state >= down
		w.mu.Unlock()
		if refused {
			l.cut()
			continue
		}
		w.running.Go(l.serve)
	}
}

func (l *link) serve() {
	defer l.cut()
	var copying sync.WaitGroup
	copying.Go(func() { l.copy(l.server, l.client, false) })
	copying.Go(func() { l.copy(l.client, l.server, true) })
	copying.Wait()
	l.w.mu.Lock()
	lost := l.lost
	l.w.mu.Unlock()
	if lost { // until the wire is whole no end learns of the other's
		<-l.gone
	}
}

func (l *link) copy(to, from net.Conn, reply bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		passes, cut := l.passes(reply)
		if cut {
			time.Sleep(applied)
			l.w.set(down)
			l.w.set(whole)
			return
		}
		if passes {
			if _, failed := to.Write(buf[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			if passes {
				to.(*net.TCPConn).CloseWrite()
			}
			return
		}
	}
}

// passes reports whether what was read may go on, and if not, whether it is the
// reply with which all connections are to be cut.
func (l *link) passes(reply bool) (yes, cut bool) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	s := l.w.state
	switch {
	case s == dark, s == mute && reply:
		l.lost = true
	case s == cutReply && reply:
		l.lost, cut = true, true
		l.w.state = mute // in the meantime
	}
	return !l.lost || s == mute && !reply, cut
}
