package zookeeper

import (
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/store"
)

// wake is a node of a request that waits. The transaction that grants the request
// deletes it.
type wake struct {
	watched bool
}

// wakeChanges are the nodes of waiters that a transaction deletes and makes, by
// the ids of their requests.
type wakeChanges struct {
	deleted, created []string
	dropped          []string // created before
}

func (w *wakeChanges) count() int { return len(w.deleted) + len(w.created) }

// drop leaves out the change with that number: its node is gone, or there,
// already.
func (w *wakeChanges) drop(i int) {
	if i < len(w.deleted) {
		w.deleted = slices.Delete(w.deleted, i, i+1)
		return
	}
	i -= len(w.deleted)
	w.dropped = append(w.dropped, w.created[i])
	w.created = slices.Delete(w.created, i, i+1)
}

// waits has the transaction make a node for a request that is queued, unless
// there is one.
func (s *Store) waits(st *step, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.wakes[id]; w == nil || !w.watched {
		st.wakes.created = append(st.wakes.created, id)
	}
}

// waitsNot has the transaction delete the node of a request that no longer waits,
// if there is one.
func (s *Store) waitsNot(st *step, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wakes[id] != nil {
		st.wakes.deleted = append(st.wakes.deleted, id)
	}
}

// noteWakes follows the changes of a transaction and returns for which of the
// requests of this handle this is news. After an unknown outcome a node may be
// there that nothing watches.
func (s *Store) noteWakes(name string, w *wakeChanges, certain bool) (news map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news = make(map[string]bool)
	for _, id := range w.deleted {
		if news[id] = s.wakes[id] != nil; certain {
			delete(s.wakes, id)
		}
	}
	if s.closed {
		return news
	}
	for _, id := range slices.Concat(w.created, w.dropped) {
		node := &wake{watched: certain}
		s.wakes[id] = node
		if certain {
			go s.watch(name, id, node)
		}
	}
	return news
}

// forget deletes the node of a request that no longer waits, if no transaction
// did.
func (s *Store) forget(id string) {
	s.mu.Lock()
	w := s.wakes[id]
	delete(s.wakes, id)
	s.mu.Unlock()
	if w != nil {
		go s.conn.Delete(s.wakePath(id), -1)
	}
}

// watch waits until the node of a request is deleted, and tells the request. The
// server tells of a deletion that happened while the connection was broken.
func (s *Store) watch(name, id string, w *wake) {
	for {
		there, _, changed, err := s.conn.ExistsW(s.wakePath(id))
		if err != nil {
			break // the node is there as long as the session is
		}
		if !there {
			s.granted(name, id, w)
			return
		}
		var event zk.Event
		select {
		case <-s.ctx.Done():
			return
		case event = <-changed:
		}
		if event.Type == zk.EventNodeDeleted {
			s.granted(name, id, w)
			return
		}
		if event.Type == zk.EventNotWatching {
			break // the session is over, and the node with it
		}
	}
	s.mu.Lock()
	if s.wakes[id] == w {
		w.watched = false // the request makes the node again
	}
	s.mu.Unlock()
	s.sinks.Push(store.Event{ID: id})
}

// granted tells a request of its token, unless it was told already or has ended.
func (s *Store) granted(name, id string, w *wake) {
	s.mu.Lock()
	waits := s.wakes[id] == w
	if waits {
		delete(s.wakes, id)
	}
	s.mu.Unlock()
	if !waits {
		return
	}
	event := store.Event{ID: id}
	if n, err := s.read(s.namePath(name), false); err == nil {
		if r, err := n.record(present{epoch: epochOf(n.zxid)}); err == nil {
			event.Token, event.Short, _ = r.Hold(id)
		}
	}
	s.sinks.Push(event)
}
