package zookeeper

import (
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/store"
)

// waits has the handle watch the node of a request that was queued, until it is
// deleted. The place lasts until then, or longer if the request asks again.
func (s *Store) waits(name, room, id string, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, watched := s.waiting[id]
	s.waiting[id] = until
	if !watched && s.ctx.Err() == nil {
		go s.watch(name, room, id)
	}
}

// ended is called when a request no longer waits. It says whether this handle has
// counted it as waiting until now, and when its place has ended at the latest.
func (s *Store) ended(id string) (until time.Time, waited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, waited = s.waiting[id]
	delete(s.waiting, id)
	return until, waited
}

// placeLeft is after how long the place of a request may have ended, if it waits. One that is
// no longer waited for is about to go.
func (s *Store) placeLeft(id string) (left time.Duration, waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ends, ok := s.waiting[id]; ok {
		return max(time.Until(ends), time.Second), true
	}
	return time.Minute, false
}

// watch waits until the node of a request is deleted, and tells the request. The
// server tells of a deletion that happened while the connection was broken. At the end
// of a session the watch ends, and is set again. A place that has ended is removed.
// Without a watch only a request that still waits goes on, as the failure may last for ever.
func (s *Store) watch(name, room, id string) {
	var changed <-chan zk.Event // nil if there is no watch
	for pause := retryPause; ; {
		left, waits := s.placeLeft(id)
		if changed == nil {
			var err error
			// A watch on a node that is missing would last as long as the session.
			// GetW sets none then.
			_, _, changed, err = s.conn.GetW(s.namePath(name) + "/" + room + id)
			if err == zk.ErrNoNode {
				break
			}
			if err != nil && !waits {
				return
			}
		}
		wait := pause
		if changed != nil {
			pause, wait = retryPause, left
		} else {
			pause = min(2*pause, time.Second)
		}
		select {
		case event := <-changed:
			if event.Type == zk.EventNodeDeleted {
				s.granted(name, id)
				return
			}
			changed = nil
		case <-time.After(wait):
			if changed != nil {
				s.settle(s.ctx, name)
			}
		case <-s.ctx.Done():
			return
		}
	}
	s.granted(name, id)
}

// granted tells a request of its token, or to ask again, unless it was told already or
// has ended. While it holds, the record is kept up to date until this handle changes it:
// waiters of other handles come, and the release need not read first.
func (s *Store) granted(name, id string) {
	var until time.Time
	for seen := (*snapshot)(nil); ; {
		state, err := s.lockName(s.ctx, name)
		if err != nil {
			return
		}
		goesOn := state.known == seen
		if seen == nil { // an operation of this handle that has granted it has told it
			until, goesOn = s.ended(id)
		}
		if !goesOn {
			s.unlockName(name, state)
			return
		}
		data, stat, changed, err := s.conn.GetW(s.namePath(name))
		n, err := found(data, stat, err)
		if err != nil || !n.exists() {
			n = nil
		}
		state.known, state.contended = n, false
		s.unlockName(name, state)
		if seen == nil {
			event := n.event(id)
			if event.Token > 0 || time.Now().Before(until) {
				s.sinks.Tell(event)
			}
			if event.Token == 0 {
				return
			}
		}
		if seen = n; n == nil {
			return
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			return
		}
	}
}

// event is what a record tells a request: its token if it holds, and else to ask again.
func (n *snapshot) event(id string) store.Event {
	event := store.Event{ID: id}
	if n == nil {
		return event
	}
	if r, err := n.record(present{epoch: epochOf(n.zxid)}); err == nil {
		event.Token, event.Short, _ = r.Hold(id)
	}
	return event
}
