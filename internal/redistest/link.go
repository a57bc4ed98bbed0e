package redistest

import (
	"bufio"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/proxytest"
)

// link is one connection of a client through a proxy.
type link struct {
	*proxytest.Link
	p   *Proxy
	out chan parcel // to the client

	mu     sync.Mutex
	owed   []owed
	resp3  bool // the client has said HELLO 3
	inline bool // replies cannot be told from messages: all pass
}

// parcel is on its way to the client.
type parcel struct {
	due  time.Time
	raw  []byte
	last bool // close the connection instead
}

// owed is a request that the server has not replied to yet.
type owed struct {
	fate fate
	// sub and pushes are of a SUBSCRIBE or its kin, which RESP3 answers by so many
	// push messages and by a reply only when it fails.
	sub    string
	pushes int
}

type fate int

const (
	deliver fate = iota
	drop
	mute   // drop it and all that follow
	hangUp // close the connection instead
)

// serve copies until both ends have closed.
func (p *Proxy) serve(on *proxytest.Link) {
	l := &link{Link: on, p: p, out: make(chan parcel, 8192)}
	var copying sync.WaitGroup
	copying.Go(l.requests)
	copying.Go(l.replies)
	copying.Go(l.hand)
	copying.Wait()
}

// requests copies from the client to the server.
func (l *link) requests() {
	r := bufio.NewReader(l.Client)
	for {
		raw, args, err := readRequest(r)
		if err != nil {
			// The server shall still do what it was sent before, so no cut, which
			// could make the kernel drop it.
			if !l.Loses() {
				l.Server.(*net.TCPConn).CloseWrite()
			}
			return
		}
		if l.Loses() {
			continue
		}
		action, held := l.p.decide(args)
		switch action {
		case CutBefore:
			l.Cut()
			return
		case Hold:
			select {
			case <-held:
			case <-l.Gone:
				return
			}
		}
		if l.Loses() {
			continue
		}
		fate := deliver
		switch action {
		case CutReply:
			fate = hangUp
		case SwallowReply:
			fate = mute
		case Twice:
			l.owe(args, drop)
			raw = append(raw, raw...)
		}
		l.owe(args, fate)
		if _, err := l.Server.Write(raw); err != nil {
			return // the reader of replies sees it too
		}
	}
}

func (l *link) owe(args []string, f fate) {
	o := owed{fate: f}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch command := strings.ToLower(args[0]); command {
	case "hello":
		l.resp3 = len(args) > 1 && args[1] == "3"
	case "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe":
		l.inline = l.inline || !l.resp3
		o.sub, o.pushes = command, max(1, len(args)-1)
	}
	l.owed = append(l.owed, o)
}

// replies takes what the server sends.
func (l *link) replies() {
	defer close(l.out)
	r := bufio.NewReader(l.Server)
	silent := false
	for {
		v, err := readValue(r)
		if err != nil {
			l.send(parcel{last: true})
			return
		}
		switch f := l.settle(v); {
		case f == hangUp && !silent:
			l.send(parcel{last: true})
			return
		case f == mute:
			silent = true
		case f == deliver && (!silent || v.kind == '>'):
			l.send(parcel{raw: v.raw})
		}
	}
}

// settle finds the request that the value answers.
func (l *link) settle(v value) fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inline {
		return deliver
	}
	if v.kind == '>' {
		for i := range l.owed {
			if o := &l.owed[i]; o.sub != "" && o.sub == v.first {
				if o.pushes--; o.pushes == 0 {
					l.owed = append(l.owed[:i], l.owed[i+1:]...)
				}
				break
			}
		}
		return deliver
	}
	for len(l.owed) > 0 {
		o := l.owed[0]
		l.owed = l.owed[1:]
		if o.sub == "" || v.kind == '-' {
			return o.fate
		}
	}
	return deliver // unasked, such as "-ERR max number of clients reached"
}

func (l *link) send(x parcel) {
	l.p.mu.Lock()
	x.due = time.Now().Add(l.p.delay)
	l.p.mu.Unlock()
	select {
	case l.out <- x:
	case <-l.Gone:
	}
}

// hand gives the client what is due.
func (l *link) hand() {
	for x := range l.out {
		if wait := time.Until(x.due); wait > 0 {
			select {
			case <-time.After(wait):
			case <-l.Gone:
				return
			}
		}
		switch {
		case l.Loses():
		case x.last:
			l.Cut()
			return
		default:
			l.Client.Write(x.raw) // a client that has gone misses it
		}
	}
}
