package redistest

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/proxytest"
)

// Proxy stands between clients and one server. It understands RESP, so that it
// can lose, repeat and hold back single script calls, the EVALSHA and EVAL
// commands of clients, and HDEL, which releases a lone hold and counts as a script
// call. All methods may be called concurrently.
//
// Blackhole loses delayed replies and held requests too. Script calls lost on the
// wire are not counted.
type Proxy struct {
	*proxytest.Proxy

	planning sync.Mutex // has the plan asked about one call at a time, in order

	mu     sync.Mutex
	calls  int
	plan   func(call int, args []string) Action
	unhold chan struct{} // closed by Unhold, which makes another
	delay  time.Duration
}

// Action is what happens to a script call.
type Action int

const (
	// Pass forwards the request, and its reply.
	Pass Action = iota
	// CutBefore closes the connection and does not forward the request. Replies
	// to earlier requests may be lost too.
	CutBefore
	// CutReply forwards the request, waits for its reply and then closes the
	// connection. The client gets the replies to all earlier requests.
	CutReply
	// SwallowReply forwards the request and drops its reply, and all later replies
	// of that connection, which would be taken for it. Push messages still pass.
	SwallowReply
	// Twice forwards the request twice in a row and gives the client the second
	// reply, as if it had not got the first.
	Twice
	// Hold keeps the request back, and all later ones of that connection, until
	// Unhold. They then reach the server even if the client has gone meanwhile.
	Hold
)

// StartProxy starts a proxy on a free port of 127.0.0.1 in front of the server
// at target ("127.0.0.1:port"), which need not run: without it the proxy closes
// connections at once. It ends with the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{unhold: make(chan struct{})}
	p.Proxy = proxytest.StartWith(t, target, p.serve)
	return p
}

// URL is "redis://127.0.0.1:port".
func (p *Proxy) URL() string { return "redis://" + p.Addr }

// Calls returns how many script calls came since the last Plan, or since the
// start. A call counts when it arrives, before anything happens to it; Twice
// does not make it two. A client that sends EVALSHA and is told NOSCRIPT sends
// EVAL next, which is another call.
func (p *Proxy) Calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// Plan has f say what happens to each script call from now on, and starts to
// count calls at 1. args are the command, sha or script, number of keys, keys
// and arguments; or HDEL, key and field. The proxy asks about one call after another, over all
// connections; f may block, which blocks all of them. A nil f means Pass.
func (p *Proxy) Plan(f func(call int, args []string) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan, p.calls = f, 0
}

// decide asks the plan. held is closed by the first Unhold after the call came,
// even if that is before the plan has answered.
func (p *Proxy) decide(args []string) (a Action, held <-chan struct{}) {
	switch strings.ToUpper(args[0]) {
	case "EVAL", "EVALSHA", "HDEL":
	default:
		return Pass, nil
	}
	p.planning.Lock()
	defer p.planning.Unlock()
	p.mu.Lock()
	p.calls++
	call, plan, held := p.calls, p.plan, p.unhold
	p.mu.Unlock()
	if plan == nil {
		return Pass, nil
	}
	return plan(call, args), held
}

// Unhold forwards all requests that are held now. Later ones can be held again.
func (p *Proxy) Unhold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.unhold)
	p.unhold = make(chan struct{})
}

// Delay has each reply and push message that arrives from now on come d later.
// It is latency: requests go on at once, and replies do not wait for each other.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}
