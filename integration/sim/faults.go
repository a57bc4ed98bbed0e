package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
)

var (
	errFailure = errors.New("sim: the server is loading its data")
	errRefusal = fmt.Errorf("sim: memory is full: %w", store.ErrRefused)
	errDown    = errors.New("sim: connection refused")
)

// meet sends a call through the faults that the plan has for it.
func (l *link) meet(ctx context.Context, deliver func(context.Context) faultstore.Result) faultstore.Result {
	w, s := l.world, sendingOf(ctx)
	if w.healed.Load() {
		return deliver(ctx)
	}
	if l.isSevered() {
		return faultstore.Mute()(ctx, deliver)
	}
	d := l.draw(1, s.n)
	for i := range w.plan.Faults {
		f := &w.plan.Faults[i]
		met := d.Float64() < f.Share
		fault := l.fault(d, f, s)
		if f.Client >= 0 && f.Client != l.client || fault == nil || f.Kind.ofCalls() && !met {
			continue
		}
		w.history.effect(f.Kind)
		next := deliver
		deliver = func(ctx context.Context) faultstore.Result { return fault(ctx, next) }
	}
	return deliver(ctx)
}

// draw is the source of what happens to the n-th call or event of a link.
func (l *link) draw(of, n int) draw {
	return draw{rand.New(rand.NewPCG(l.world.plan.Seed, uint64(of)<<60|uint64(l.client)<<40|uint64(n)))}
}

// fault is what f does to a call; nil if it does nothing to such calls at present.
func (l *link) fault(d draw, f *Fault, s *sending) faultstore.Fault {
	var (
		w     = l.world
		ttl   = w.plan.TTL
		short = d.upTo(ttl / 10)      // mostly within a call's timeout
		long  = ttl/3 + d.upTo(2*ttl) // mostly beyond it
		first = d.one(2)              // the request, not the reply
	)
	switch f.Kind {
	case DropRequest:
		return faultstore.DropRequest()
	case DropReply:
		return faultstore.DropReply()
	case Mute:
		return faultstore.Mute()
	case MuteReply:
		return faultstore.MuteReply()
	case Duplicate:
		return faultstore.Duplicate()
	case LateTwin:
		return faultstore.DuplicateAfter(long)
	case SlowRequest:
		return faultstore.DelayRequest(short)
	case SlowReply:
		return faultstore.DelayReply(short)
	case LateRequest:
		return faultstore.DelayRequest(long)
	case LateReply:
		return faultstore.DelayReply(long)
	case Refusal:
		return faultstore.Answer(errRefusal)
	case Failure:
		return faultstore.Answer(errFailure)
	case PauseBefore:
		return faultstore.Pause(long, 0)
	case PauseAfter:
		return faultstore.Pause(0, long)
	case Severed:
		if !s.renews() {
			return nil
		}
		return l.sever(short, ttl+long)
	case ForgedEvent:
		return l.forge(store.Event{ID: fmt.Sprintf("%032x", d.Uint64()), Token: d.Uint64()})
	case Outage:
		return whileOn(w.isOn(f), broken(f.Silent, first))
	case Restart, DataLoss:
		return whileOn(w.isOn(f), broken(f.Silent, true))
	case SlowStore:
		if first {
			return whileOn(w.isOn(f), faultstore.DelayRequest(ttl+long))
		}
		return whileOn(w.isOn(f), faultstore.DelayReply(ttl+long))
	case Drift, WildClock: // set when the link is made
		return func(ctx context.Context, deliver func(context.Context) faultstore.Result) faultstore.Result {
			return deliver(ctx)
		}
	}
	return nil
}

// broken is a link that is down: it swallows the request or the reply, and says so or not.
func broken(silent, request bool) faultstore.Fault {
	switch {
	case silent && request:
		return faultstore.Mute()
	case silent:
		return faultstore.MuteReply()
	case request:
		return faultstore.Answer(errDown)
	}
	return faultstore.AnswerAfter(errDown)
}

func whileOn(on bool, fault faultstore.Fault) faultstore.Fault {
	if !on {
		return nil
	}
	return fault
}

// sever has a call answered later, and then the link dead: what its client
// believes of its holds by that answer, it believes to the end.
func (l *link) sever(later, dead time.Duration) faultstore.Fault {
	slow := faultstore.DelayReply(later)
	return func(ctx context.Context, deliver func(context.Context) faultstore.Result) faultstore.Result {
		r := slow(ctx, deliver)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.severed = time.Now().Add(dead)
		return r
	}
}

func (l *link) isSevered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.severed)
}

// forge has the client told, before its call, that the store reconnected, and
// that somebody unknown was granted.
func (l *link) forge(e store.Event) faultstore.Fault {
	return func(ctx context.Context, deliver func(context.Context) faultstore.Result) faultstore.Result {
		l.mu.Lock()
		due := l.world.plan.Scene != Many || time.Since(l.forged) > l.world.plan.TTL/8 // each has thousands ask
		if due {
			l.forged = time.Now()
		}
		l.mu.Unlock()
		if due {
			l.behind.Emit(store.Event{})
		}
		l.behind.Emit(e)
		return deliver(ctx)
	}
}

// meetEvent sends an event through the faults that the plan has for it.
func (l *link) meetEvent(e store.Event, deliver func(store.Event)) {
	w := l.world
	l.mu.Lock()
	l.events++
	n := l.events
	l.mu.Unlock()
	d := l.draw(2, n)
	for i := range w.plan.Faults {
		f := &w.plan.Faults[i]
		met := d.Float64() < f.Share
		late, next := pick(d, d.upTo(w.plan.TTL/8), d.upTo(2*w.plan.TTL)), deliver
		switch {
		case w.healed.Load() || f.Client >= 0 && f.Client != l.client || f.Kind.ofEvents() && !met:
			continue
		case f.Kind == LostEvent || w.isOn(f) && f.Kind != SlowStore:
			deliver = func(store.Event) {}
		case f.Kind == DoubledEvent:
			deliver = func(e store.Event) {
				next(e)
				time.AfterFunc(late, func() { next(e) })
			}
		case f.Kind == LateEvent:
			deliver = func(e store.Event) { time.AfterFunc(late, func() { next(e) }) }
		default:
			continue
		}
		w.history.effect(f.Kind)
	}
	deliver(e)
}
