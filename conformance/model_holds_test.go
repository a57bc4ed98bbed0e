package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/store"
)

func (h *modelHandle) Release(ctx context.Context, ref store.Ref) (err error) {
	m := h.model
	failed := h.on(ctx, "Release", ref.Name, func(l *modelLock) {
		if e := m.find(l.holds, ref.ID); e != nil && e.via != h && m.is("only the handle that acquired releases") {
			err = store.ErrLost
			return
		}
		if e := m.find(l.holds, ref.ID); e != nil && e.Mode == store.Shared && m.is("shared holds are not released") {
			return
		}
		err = m.release(l, ref)
	})
	if m.is("a release deletes a foreign key") {
		m.mu.Lock()
		delete(m.foreign, ref.Name)
		m.mu.Unlock()
	}
	if failed != nil && m.is("unknown outcomes show ids") {
		return fmt.Errorf("release %s: %w", ref.ID[6:], failed)
	}
	if failed != nil {
		return failed
	}
	return err
}

func (m *model) release(l *modelLock, ref store.Ref) error {
	id := ref.ID
	there := m.find(l.holds, id) != nil || m.find(l.queue, id) != nil
	if m.is("not atomic: release") && there {
		m.gap()
		m.leave(l, id, true)
		return nil
	}
	bury := ref.Bury && !m.is("bury is ignored") && !(m.is("only what is there is buried") && !there) &&
		!(m.is("the dead are not buried") && m.find(l.dead, id) != nil)
	quiet := ref.Bury && (m.is("bury promotes nobody") || m.is("a buried place promotes nobody") && m.find(l.queue, id) != nil)
	if bury {
		if end, ok := l.buried[id]; !ok || !m.is("burying again is ignored") {
			l.buried[id] = m.now().Add(ref.TTL)
		} else {
			l.buried[id] = end
		}
		switch m.bug {
		case "a burial covers its owner":
			l.buried[ref.Owner] = l.buried[id]
		case "a burial ends early":
			l.buried[id] = m.now().Add(ref.TTL / 2)
		case "a buried hold stays":
			return nil
		}
	}
	if !ref.Bury && m.is("release ends a burial") {
		delete(l.buried, id)
	}
	if there && m.is("release takes all of the owner") {
		for _, e := range slices.Concat(l.holds, l.queue) {
			if e.Owner == ref.Owner && e.ID != id {
				m.leave(l, e.ID, false)
			}
		}
	}
	if !there && m.is("release goes by owner") {
		for _, e := range l.holds {
			if e.Owner == ref.Owner {
				id = e.ID
			}
		}
	}
	if !m.leave(l, id, !quiet) && !m.is("release never says lost") {
		if m.is("release of an unknown name panics") && l.fresh {
			m.mu.Unlock()
			panic("nothing to release")
		}
		return store.ErrLost
	}
	return nil
}

func (h *modelHandle) Renew(ctx context.Context, refs []store.Ref) []error {
	m := h.model
	errs := make([]error, len(refs))
	for i, ref := range refs {
		if m.is("a batch has one lease") {
			ref.TTL = refs[0].TTL
		}
		if m.is("a batch stops at the first loss") && i > 0 && errs[i-1] != nil {
			errs[i] = store.ErrLost
			continue
		}
		do := func(l *modelLock) {
			if e := m.find(l.holds, ref.ID); e != nil && e.via != h && m.is("only the handle that acquired renews") {
				errs[i] = store.ErrLost
				return
			}
			errs[i] = m.renew(l, ref)
		}
		if failed := h.on(ctx, "Renew", ref.Name, do); failed != nil {
			errs[i] = failed
		}
	}
	switch {
	case m.is("a batch loses its order") && len(refs) > 1:
		slices.Reverse(errs)
	case m.is("a batch ends at a thousand") && len(refs) > 1000:
		for i := range errs[1000:] {
			errs[1000+i] = errors.New("too many")
		}
	case m.is("a hold is renewed once in a batch"):
		for i, ref := range refs {
			if slices.Contains(refs[:min(i, 9)], ref) {
				errs[i] = store.ErrLost
			}
		}
	case m.is("an empty batch has a result") && len(refs) == 0:
		return []error{nil}
	}
	return errs
}

func (m *model) renew(l *modelLock, ref store.Ref) error {
	e := m.find(l.holds, ref.ID)
	if e == nil && m.is("renew finds places") {
		e = m.find(l.queue, ref.ID)
	}
	if e == nil && m.is("renew goes by owner") {
		for _, other := range l.holds {
			if other.Owner == ref.Owner {
				e = other
			}
		}
	}
	if e == nil {
		if m.is("renew revives") && !l.fresh {
			m.grant(l, &modelEntry{Request: store.Request{Name: ref.Name, Owner: ref.Owner, ID: ref.ID, Mode: ref.Mode, TTL: ref.TTL, Tokens: 1}}, 0, false)
			return nil
		}
		if m.is("renew of an unknown name never returns") && l.fresh {
			m.mu.Unlock()
			defer m.mu.Lock()
			<-make(chan int)
		}
		return store.ErrLost
	}
	if m.is("not atomic: renew") {
		m.gap()
		if m.find(l.holds, ref.ID) == nil {
			l.holds = append(l.holds, e)
		}
	}
	end := m.now().Add(ref.TTL)
	switch m.bug {
	case "renew does nothing":
		return nil
	case "renew sets all of the name":
		for _, other := range l.holds {
			other.end = end
		}
	case "renew never shortens":
		end = later(end, e.end)
	case "renew extends all of the name":
		for _, other := range l.holds {
			other.end = later(end, other.end)
		}
	case "renew extends all of the owner":
		for _, other := range l.holds {
			if other.Owner == ref.Owner {
				other.end = later(end, other.end)
			}
		}
	case "a promoted hold is renewed to its WaitTTL":
		if e.promoted {
			end = m.now().Add(e.WaitTTL)
		}
	case "renew has a new token":
		e.token = m.issue(e, false)
	case "renew makes a hold younger":
		e.since = m.now()
	case "fixed holds cannot be renewed":
		if e.Fixed {
			return store.ErrLost
		}
	}
	e.end = end
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
