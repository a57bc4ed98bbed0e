package conformance

import (
	"context"
	"math"
	"time"

	"github.com/dlock-go/dlock/store"
)

var (
	_ store.TokenRaiser = (*modelHandle)(nil)
	_ store.Incarnator  = (*modelHandle)(nil)
)

func (h *modelHandle) RaiseToken(ctx context.Context, ref store.Ref, token uint64, tokens int) (raised uint64, err error) {
	m := h.model
	failed := h.on(ctx, "RaiseToken", ref.Name, func(l *modelLock) {
		e := m.find(l.holds, ref.ID)
		if e == nil && m.is("raising goes by owner") {
			for _, other := range l.holds {
				if other.Owner == ref.Owner {
					e = other
				}
			}
		}
		if e == nil && m.is("raising finds places") {
			e = m.find(l.queue, ref.ID)
		}
		if e == nil {
			err = store.ErrLost
			return
		}
		raised = m.raise(e, token, uint64(tokens))
	})
	if failed != nil {
		return 0, failed
	}
	return raised, err
}

func (m *model) raise(e *modelEntry, token, tokens uint64) uint64 {
	if m.is("raising ignores spans") {
		tokens = 1
	}
	shared := e.Mode == store.Shared
	switch {
	case m.is("raising lowers") && token < e.token:
		e.token = token
		return token
	case token <= e.token:
		return e.token
	case shared && token <= m.last && m.is("raising repeats a token"):
	case shared && token <= m.last, token <= m.last && m.is("raising an exclusive hold asks the counter"):
		e.token = m.last + 1
		m.last += tokens
		return e.token
	}
	switch m.bug {
	case "raising leaves the counter":
	case "raising counts from above the counter alone":
		if token > m.last {
			m.last = token + tokens - 1
		}
	case "raising extends":
		e.end = m.now().Add(e.TTL)
		fallthrough
	default:
		m.last = max(m.last, token+tokens-1)
	}
	if !m.is("raising leaves the hold") {
		e.token = token
	}
	return token
}

func (h *modelHandle) Incarnation(context.Context) (string, time.Duration, error) {
	m := h.model
	m.mu.Lock()
	closed := h.closed
	m.mu.Unlock()
	if closed && !m.is("calls after Close work") && !m.is("a closed handle tells its life") {
		return "", 0, store.ErrClosed
	}
	if m.is("every handle has a life of its own") && h != m.handles[0] {
		return "another", math.MaxInt64, nil
	}
	if m.is("a life without a name") {
		return "", math.MaxInt64, nil
	}
	return "the only one", math.MaxInt64, nil
}
