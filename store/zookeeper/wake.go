package zookeeper

import (
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/store"
)

// wake is a node of a request that waits. The transaction that grants the request
// deletes it. A goroutine watches the node until it is gone.
type wake struct {
	// end deletes the node when the place ends, unless the request asks again.
	end *time.Timer
}

// wakeChanges are the nodes of waiters that a transaction deletes and makes, by
// the ids of their requests.
type wakeChanges struct {
	deleted []string
	later   []string      // deleted after the transaction
	created string        // "" for none
	lasts   time.Duration // how long the place of created lasts
	there   bool          // the node of created is there already
}

// postpone leaves at most n nodes for the transaction to delete.
func (w *wakeChanges) postpone(n int) {
	n = min(n, len(w.deleted))
	w.later = append(w.later, w.deleted[n:]...)
	w.deleted = w.deleted[:n]
}

// waits has the transaction make a node for a request that is queued, unless
// there is one.
func (s *Store) waits(st *step, id string, lasts time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.wakes[id]; w != nil && w.end.Stop() { // one that has ended is about to be deleted
		w.end.Reset(lasts)
		return
	}
	st.wakes.created, st.wakes.lasts = id, lasts
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

// noteWakes is called after a transaction that granted the requests of events. Those
// of this handle are told. The transaction tells those of other handles.
func (s *Store) noteWakes(name string, w *wakeChanges, events []store.Event, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		for _, event := range events {
			if s.wakes[event.ID] != nil {
				s.sinks.Push(event)
			}
		}
		for _, id := range slices.Concat(w.deleted, w.later) {
			s.dropWake(id)
		}
		s.deleteWakes(w.later)
	}
	switch {
	case w.created == "" || isCertain(err):
	case s.ctx.Err() != nil:
		s.deleteWakes([]string{w.created})
	default: // the watch finds out whether the node was made
		id, node := w.created, new(wake)
		node.end = time.AfterFunc(w.lasts, func() { s.endWake(id, node) })
		s.wakes[id] = node
		go s.watch(name, id, node)
	}
}

// dropWake forgets a node. s.mu is held.
func (s *Store) dropWake(id string) {
	if w := s.wakes[id]; w != nil {
		w.end.Stop()
		delete(s.wakes, id)
	}
}

// isWake says whether that is the node of a request that waits.
func (s *Store) isWake(id string, w *wake) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wakes[id] == w
}

// endWake deletes the node of a request whose place has ended.
func (s *Store) endWake(id string, w *wake) {
	s.mu.Lock()
	is := s.wakes[id] == w
	if is {
		delete(s.wakes, id)
	}
	s.mu.Unlock()
	if is {
		s.deleteWakes([]string{id})
	}
}

// forget deletes the nodes of requests that no longer wait, where no transaction
// does.
func (s *Store) forget(w *wakeChanges) {
	s.mu.Lock()
	for _, id := range w.deleted {
		s.dropWake(id)
	}
	s.mu.Unlock()
	s.deleteWakes(w.deleted)
}

// maxDeletes bounds how often the deletion of a wake node is tried, once a second in
// the end.
const maxDeletes = 60

// deleteWakes deletes nodes of waiters in the background.
func (s *Store) deleteWakes(ids []string) {
	if len(ids) > 0 {
		go each(len(ids), func(i int) error { return s.deleteWake(ids[i]) })
	}
}

// deleteWake deletes the node of a waiter. It tries again while the connection is
// broken. After Close it gives up if the connection is closed too.
func (s *Store) deleteWake(id string) (err error) {
	pause := 10 * time.Millisecond
	for range maxDeletes {
		err = outcome(s.conn.Delete(s.wakePath(id), -1))
		if err == nil || errors.Is(err, zk.ErrNoNode) || errors.Is(err, store.ErrRefused) {
			return err
		}
		time.Sleep(pause)
		// A broken connection is in this state for a moment only. A closed one stays in it.
		if s.ctx.Err() != nil && s.conn.State() == zk.StateDisconnected {
			return err
		}
		pause = min(2*pause, time.Second)
	}
	return err
}

// watch waits until the node of a request is deleted, and tells the request. The
// server tells of a deletion that happened while the connection was broken. At the end
// of a session the node is gone.
func (s *Store) watch(name, id string, w *wake) {
	for s.isWake(id, w) {
		// A watch on a node that is missing would last as long as the session. GetW
		// sets none then.
		_, _, changed, err := s.conn.GetW(s.wakePath(id))
		if err == zk.ErrNoNode {
			s.granted(name, id, w)
			return
		}
		var again <-chan time.Time
		if err != nil {
			again = time.After(retryPause)
		}
		var event zk.Event
		select {
		case <-s.ctx.Done():
			return
		case <-again:
		case event = <-changed:
		}
		if event.Type == zk.EventNodeDeleted {
			s.granted(name, id, w)
			return
		}
	}
}

// granted tells a request of its token, unless it was told already or has ended. The
// operation of this handle that has granted it, if it was one, comes first.
func (s *Store) granted(name, id string, w *wake) {
	state, err := s.lockName(s.ctx, name)
	if err != nil {
		return
	}
	defer s.unlockName(name, state)
	if !s.isWake(id, w) {
		return
	}
	event := store.Event{ID: id}
	if n := s.readWatched(name, state); n != nil {
		if r, err := n.record(present{epoch: epochOf(n.zxid)}); err == nil {
			event.Token, event.Short, _ = r.Hold(id)
		}
	}
	s.mu.Lock()
	s.dropWake(id)
	s.mu.Unlock()
	s.sinks.Push(event)
}

// readWatched reads the record of a name and keeps it up to date until this handle
// changes it: the waiters of other handles come while this one holds, and the release
// need not read first. The name is locked. The result is nil if there is no record.
func (s *Store) readWatched(name string, state *nameState) *snapshot {
	data, stat, changed, err := s.conn.GetW(s.namePath(name))
	n, err := s.found(data, stat, err)
	if err != nil {
		return nil
	}
	if !n.exists() {
		state.known = nil
		return nil
	}
	state.known, state.busy = n, 0
	go s.follow(name, n, changed)
	return n
}

// follow reads a record again when it changes, if it is what the handle still knows.
func (s *Store) follow(name string, n *snapshot, changed <-chan zk.Event) {
	select {
	case <-changed:
	case <-s.ctx.Done():
		return
	}
	state, err := s.lockName(s.ctx, name)
	if err != nil {
		return
	}
	defer s.unlockName(name, state)
	if state.known == n {
		s.readWatched(name, state)
	}
}
