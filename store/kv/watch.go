package kv

import (
	"context"
	"slices"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/model"
)

// watched are the waiters that a handle without messages looks for.
type watched struct {
	waiters map[string]*waiter // by id
	running bool               // a goroutine looks for them
	wake    chan struct{}      // holds a value when a waiter was added
}

// waiter is a request that was queued through this handle, or may have been.
type waiter struct {
	id, name string
	until    time.Time // when its place has certainly expired
	next     time.Time // when it is looked for
	pause    time.Duration
}

// watch starts to look for a request, or goes on. Asking again does not make it
// look more often, but the place lasts longer.
func (s *Store) watch(req store.Request) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if s.watched.waiters == nil {
		s.watched.waiters = make(map[string]*waiter)
		s.watched.wake = make(chan struct{}, 1)
	}
	w := s.watched.waiters[req.ID]
	if w == nil {
		w = &waiter{id: req.ID, name: req.Name, next: now.Add(s.opts.Poll), pause: s.opts.Poll}
		s.watched.waiters[req.ID] = w
	}
	w.until = now.Add(2*req.WaitTTL + time.Second) // the store's clock starts later
	if !s.watched.running {
		s.watched.running = true
		go s.look()
		return
	}
	select {
	case s.watched.wake <- struct{}{}:
	default:
	}
}

// unwatch stops looking for a request. It returns whether its event is still to be
// delivered, which is always so with messages.
func (s *Store) unwatch(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.watched.waiters[id] // with messages too, if it is older than they are
	delete(s.watched.waiters, id)
	return ok || !s.Polls()
}

// look is the goroutine that looks for waiters until there are none.
func (s *Store) look() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due, pause, ok := s.due()
		if !ok {
			return
		}
		for group := range slices.Chunk(due, s.opts.Batch) {
			s.lookFor(group)
		}
		if len(due) > 0 {
			continue
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-s.watched.wake:
		case <-s.ctx.Done():
		}
	}
}

// due returns the waiters to look for now, by name and in order, or how long
// until there is one. Without waiters ok is false, and the goroutine ends.
func (s *Store) due() (due [][]*waiter, pause time.Duration, ok bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	byName := make(map[string][]*waiter)
	pause = s.opts.MaxPoll
	for id, w := range s.watched.waiters {
		switch {
		case !w.until.After(now):
			delete(s.watched.waiters, id)
		case w.next.After(now):
			pause = min(pause, w.next.Sub(now))
		default:
			w.pause = min(2*w.pause, s.opts.MaxPoll)
			w.next = now.Add(w.pause)
			byName[w.name] = append(byName[w.name], w)
		}
	}
	if s.closed || len(s.watched.waiters) == 0 {
		s.watched.running = false
		return nil, 0, false
	}
	for _, group := range byName {
		due = append(due, group)
	}
	slices.SortFunc(due, func(a, b []*waiter) int {
		if a[0].name < b[0].name {
			return -1
		}
		return 1
	})
	return due, pause, true
}

// lookTime bounds a look at records that no call waits for. One name may be blocked,
// and the backend keeps the others locked meanwhile.
const lookTime = time.Second

// lookFor looks at the records of waiters and delivers an event for each that
// is a hold by now. If it cannot look at all of them together, it looks at each alone.
func (s *Store) lookFor(names [][]*waiter) {
	changes := make([]*change, len(names))
	granted := make([][]store.Event, len(names))
	for i, waiters := range names {
		changes[i] = &change{name: waiters[0].name, do: func(r *model.Record, c *model.Call) {
			r.Settle(c)
			granted[i] = nil
			for _, w := range waiters {
				if token, short, ok := r.Hold(w.id); ok {
					granted[i] = append(granted[i], store.Event{ID: w.id, Token: token, Short: short})
				}
			}
		}}
	}
	ctx, cancel := context.WithTimeout(s.ctx, lookTime)
	defer cancel()
	if s.update(ctx, changes...) != nil {
		if len(names) > 1 && s.ctx.Err() == nil {
			for i := range names {
				s.lookFor(names[i : i+1])
			}
		}
		return // the next look may succeed
	}
	for _, events := range granted {
		for _, e := range events {
			s.deliver(e)
		}
	}
}
