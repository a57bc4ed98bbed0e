package dlock

import (
	"sync"

	"github.com/dlock-go/dlock/store"
)

// pushes takes the store's events to the attempts that wait for them. An
// attempt is entered before its first request is sent, for the event may
// overtake the reply.
type pushes struct {
	mu      sync.Mutex
	waiting map[string]*attempt // by acquisition id
}

func (p *pushes) add(a *attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == nil {
		p.waiting = make(map[string]*attempt)
	}
	p.waiting[a.req.ID] = a
}

func (p *pushes) remove(a *attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, a.req.ID)
}

// deliver is the sink that the store calls. An id that is not waiting (any
// more) is no concern: if it was granted, whoever left it gives it back.
func (p *pushes) deliver(e store.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.ID != "" {
		if a := p.waiting[e.ID]; a != nil {
			a.push(e.Token)
		}
		return
	}
	for _, a := range p.waiting {
		a.hint()
	}
}
