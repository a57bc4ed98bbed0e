package postgrestest

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dlock-go/dlock/internal/proxytest"
)

// Proxy stands between clients and a server, and can lose the answer to a statement.
// Its methods may be called concurrently.
type Proxy struct {
	*proxytest.Proxy

	mu   sync.Mutex
	word []byte
}

// StartProxy starts a proxy on a free port. It ends with the test.
func (s *Server) StartProxy(t testing.TB) *Proxy {
	t.Helper()
	p := &Proxy{}
	p.Proxy = proxytest.StartWith(t, s.Addr, p.serve)
	return p
}

// SwallowAnswerTo passes the next message with that text on to the server, drops
// the answer and closes the connection when the server has answered.
func (p *Proxy) SwallowAnswerTo(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.word = []byte(text)
}

// found reports whether the message is the one whose answer is to be dropped.
func (p *Proxy) found(message []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.word == nil || !bytes.Contains(message, p.word) {
		return false
	}
	p.word = nil
	return true
}

func (p *Proxy) serve(l *proxytest.Link) {
	var swallow atomic.Bool
	toServer := func(to net.Conn, message []byte) error {
		if p.found(message) {
			swallow.Store(true)
		}
		return proxytest.Write(to, message)
	}
	toClient := func(to net.Conn, answer []byte) error {
		if swallow.Load() { // the server has answered, so it is done
			l.Cut()
			return errors.New("the answer is dropped")
		}
		return proxytest.Write(to, answer)
	}
	l.Forward(toServer, toClient)
}
