package zookeeper_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dlock-go/dlock/internal/proxytest"
)

// deafProxy stands between a handle and a server. While it is deaf, requests reach
// the server and answers are lost. While its gate is locked, nothing passes.
type deafProxy struct {
	*proxytest.Proxy
	deaf atomic.Bool
	gate sync.RWMutex
}

func startDeafProxy(t testing.TB, target string) *deafProxy {
	t.Helper()
	p := &deafProxy{}
	p.Proxy = proxytest.StartWith(t, target, func(l *proxytest.Link) { l.Forward(p.request, p.answer) })
	return p
}

func (p *deafProxy) request(to net.Conn, message []byte) error {
	p.gate.RLock()
	defer p.gate.RUnlock()
	return proxytest.Write(to, message)
}

func (p *deafProxy) answer(to net.Conn, message []byte) error {
	p.gate.RLock()
	defer p.gate.RUnlock()
	if p.deaf.Load() {
		return nil
	}
	return proxytest.Write(to, message)
}
