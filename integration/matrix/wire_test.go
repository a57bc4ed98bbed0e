package matrix

import (
	"sync"
	"time"
)

// fault is what happens to a reply. The request is applied in any case.
type fault string

const (
	cut       fault = "cut"       // its connection breaks instead
	mute      fault = "mute"      // it is not heard, and nothing else is, for muteFor
	late      fault = "late"      // it takes lateBy
	duplicate fault = "duplicate" // the request is applied twice, and the second reply is heard
)

// request is what loses its reply.
type request string

const (
	acquire request = "acquire"
	renew   request = "renew"
	release request = "release"
)

// Both are longer than a call of the store may take.
const (
	muteFor = 1300 * time.Millisecond
	lateBy  = 1200 * time.Millisecond
)

// wire is between one client and its store.
type wire interface {
	// lose has the fault happen to the next request of the kind, or until stop to
	// all of them, and calls bites with the first one on its way. It happens to one in
	// any case: of a quorum, the caller need not have waited for this node's.
	lose(what request, how fault, all bool, bites func())
	stop()
	// healed is closed when the reply has been lost and the wire is good again.
	healed() <-chan struct{}
}

// plan is what the wires of both stores have in common: which request meets the
// fault, and when the wire is good again.
type plan struct {
	mu     sync.Mutex
	what   request
	how    fault
	all    bool
	bites  func()
	met    int
	good   chan struct{}
	repair func() // what heals a mute wire
}

func (p *plan) lose(what request, how fault, all bool, bites func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what, p.how, p.all, p.bites, p.met, p.good = what, how, all, bites, 0, make(chan struct{})
}

// meets says what happens to a request, or to one of no kind, which passes.
func (p *plan) meets(what request) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if what == "" || what != p.what || p.met > 0 && !p.all {
		return ""
	}
	if p.met++; p.met > 1 {
		return p.how
	}
	p.bites()
	good, repair := p.good, p.repair
	heal := func() {
		if p.how == mute {
			repair()
		}
		close(good)
	}
	switch p.how {
	case mute:
		time.AfterFunc(muteFor, heal)
	case late:
		time.AfterFunc(lateBy, heal)
	default:
		heal()
	}
	return p.how
}

// spare ends the wait for a request that has not come: none meets the fault any more.
func (p *plan) spare() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.met == 0 {
		p.met, p.all = 1, false
		close(p.good)
	}
}

func (p *plan) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = false
}

func (p *plan) healed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.good
}
