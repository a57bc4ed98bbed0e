package conformance

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/store"
)

func (h *modelHandle) Listen(sink func(store.Event)) (stop func()) {
	m := h.model
	m.mu.Lock()
	defer m.mu.Unlock()
	if !h.closed {
		h.sinks = append(h.sinks, &sink)
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if !m.is("stop is ignored") {
			h.sinks = slices.DeleteFunc(slices.Clone(h.sinks), func(s *func(store.Event)) bool { return s == &sink })
		}
	}
}

func (h *modelHandle) Inspect(ctx context.Context, name string) (s store.State, err error) {
	m := h.model
	if m.isForeign(name) && !m.is("foreign keys look free") {
		return s, store.ErrForeignKey
	}
	failed := h.on(ctx, "Inspect", name, func(l *modelLock) {
		s = store.State{Name: m.key(name), Token: m.last, Holders: m.entries(l.holds), Queue: m.entries(l.queue)}
		if m.is("buried ids are shown") {
			for id := range l.buried {
				s.Holders = append(s.Holders, store.Entry{ID: store.Short(id)})
			}
		}
		if m.is("Inspect renews") {
			for _, e := range l.holds {
				e.end = m.now().Add(e.TTL)
			}
		}
	})
	if failed != nil {
		return store.State{}, failed
	}
	s.Name = name
	if m.is("State.Token is the next one") {
		s.Token++
	}
	if m.is("State.Token is the last grant's") && len(s.Holders) > 0 {
		s.Token = s.Holders[0].Token
	}
	if m.is("newest grant first") {
		slices.Reverse(s.Holders)
	}
	if m.is("a free name is an error") && len(s.Holders)+len(s.Queue) == 0 && s.Token == 0 {
		return s, store.ErrLost
	}
	return s, nil
}

func (m *model) entries(list []*modelEntry) (shown []store.Entry) {
	for _, e := range list {
		x := store.Entry{ID: store.Short(e.ID), Owner: store.Short(e.Owner), Mode: e.Mode, Token: e.token, Remaining: e.end.Sub(m.now()), Label: e.Label, Age: m.age(e)}
		switch m.bug {
		case "ids are shown whole":
			x.ID = e.ID
		case "owners are shown whole":
			x.Owner = e.Owner
		case "labels are lost":
			x.Label = ""
		case "labels lose what cannot be printed":
			x.Label = strings.Map(func(r rune) rune {
				if r < ' ' {
					return -1
				}
				return r
			}, e.Label)
		case "remaining does not count down":
			x.Remaining = e.TTL
		case "waiters show a token":
			x.Token = max(e.token, 1)
		}
		shown = append(shown, x)
	}
	return shown
}

func (h *modelHandle) Break(ctx context.Context, name string) (broken int, err error) {
	m := h.model
	if m.isForeign(name) && !m.is("Break breaks foreign keys") {
		return 0, store.ErrForeignKey
	}
	failed := h.on(ctx, "Break", name, func(l *modelLock) {
		broken = len(l.holds)
		l.holds = nil
		switch m.bug {
		case "Break takes one":
			broken = min(broken, 1)
		case "Break takes every name":
			for _, other := range m.locks {
				other.holds = nil
			}
		case "Break breaks foreign keys":
			if m.foreign[name] {
				delete(m.foreign, name)
				broken++
			}
		case "Break counts from one":
			broken = max(broken, 1)
		case "Break issues tokens again":
			m.last = 0
		case "Break ends burials":
			clear(l.buried)
		}
		if !m.is("Break promotes nobody") {
			m.promote(l)
		}
	})
	return broken, failed
}

func (h *modelHandle) List(ctx context.Context) (names []string, err error) {
	m := h.model
	if m.is("List ignores ctx") {
		ctx = context.Background()
	}
	if err := h.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	for name, l := range m.locks {
		if m.is("List leaves out names with a dead hold") && slices.ContainsFunc(l.holds, func(e *modelEntry) bool { return m.dead(e.end) }) {
			continue
		}
		if !m.is("List shows the dead") {
			m.expire(l)
		}
		if len(l.holds)+len(l.queue) > 0 || m.is("List shows free names") {
			names = append(names, name)
		}
		if len(l.holds) > 0 && len(l.queue) > 0 && m.is("List shows a name for each part") {
			names = append(names, name)
		}
	}
	return names, nil
}

func (h *modelHandle) MinTTL() time.Duration {
	if h.is("MinTTL is zero") {
		return 0
	}
	return time.Millisecond
}

func (h *modelHandle) Close() error {
	m := h.model
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.closed && m.is("the second Close fails") {
		return store.ErrClosed
	}
	if m.is("not atomic: Close") && !h.closed {
		if m.gap(); h.closed {
			panic("closed twice")
		}
	}
	h.closed = true
	switch m.bug {
	case "Close keeps sinks":
		return nil
	case "Close releases":
		for _, l := range m.locks {
			l.holds = m.without(l.holds, func(e *modelEntry) bool { return e.via == h })
		}
	case "Close closes every handle":
		for _, other := range m.handles {
			other.sinks = nil
		}
	}
	h.sinks = nil
	return nil
}
