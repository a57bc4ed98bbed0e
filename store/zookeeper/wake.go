package zookeeper

import (
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/store"
)

// wake is a node of a request that waits. The transaction that grants the request
// deletes it.
type wake struct {
	watched bool

	// busy: an operation of this handle is about to delete the node, and it tells
	// the request what there is to tell. deleted: the node went meanwhile.
	busy, deleted bool
}

// wakeChanges are the nodes of waiters that a transaction deletes and makes, by
// the ids of their requests.
type wakeChanges struct {
	deleted, created []string
	later            []string // deleted after the transaction
	dropped          []string // created before
}

func (w *wakeChanges) count() int { return len(w.deleted) + len(w.created) }

// postpone leaves at most n nodes for the transaction to delete.
func (w *wakeChanges) postpone(n int) {
	n = min(n, len(w.deleted))
	w.later = append(w.later, w.deleted[n:]...)
	w.deleted = w.deleted[:n]
}

// drop makes up for the failure of the change with that number. A node that was to
// be made is there already. If one that was to be deleted is gone, there may be more,
// and each would cost a transaction: all are deleted afterwards.
func (w *wakeChanges) drop(i int) {
	if i < len(w.deleted) {
		w.postpone(0)
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

// takeWakes is called before a transaction. It returns the ids of this handle
// whose nodes the transaction deletes.
func (s *Store) takeWakes(w *wakeChanges) (taken []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Concat(w.deleted, w.later) {
		if node := s.wakes[id]; node != nil {
			node.busy = true
			taken = append(taken, id)
		}
	}
	return taken
}

// noteWakes is called after a transaction, with what takeWakes returned. Where the
// outcome is unknown a node may be there that nothing watches.
func (s *Store) noteWakes(name string, w *wakeChanges, taken []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range taken {
		node := s.wakes[id]
		switch {
		case node == nil: // Close
		case err == nil:
			delete(s.wakes, id)
		default:
			node.busy = false
			if node.deleted {
				go s.granted(name, id, node)
			}
		}
	}
	if err == errConflict {
		return
	}
	if err == nil {
		s.deleteWakes(w.later)
	}
	if s.closed {
		s.deleteWakes(slices.Concat(w.created, w.dropped))
		return
	}
	for _, id := range slices.Concat(w.created, w.dropped) {
		node := &wake{watched: err == nil}
		s.wakes[id] = node
		if err == nil {
			go s.watch(name, id, node)
		}
	}
}

// forget deletes the nodes of requests that no longer wait, where no transaction
// does.
func (s *Store) forget(w *wakeChanges) {
	s.mu.Lock()
	for _, id := range w.deleted {
		delete(s.wakes, id)
	}
	s.mu.Unlock()
	s.deleteWakes(w.deleted)
}

// maxDeletes bounds how often the deletion of a wake node is tried, once a second in
// the end.
const maxDeletes = 60

// deleteWakes deletes nodes of waiters in the background.
func (s *Store) deleteWakes(ids []string) {
	if len(ids) == 0 {
		return
	}
	go each(len(ids), func(i int) error { return s.deleteWake(ids[i]) })
}

// deleteWake deletes the node of a waiter. It tries again while the connection is
// broken. After Close it gives up if the session ends too.
func (s *Store) deleteWake(id string) (err error) {
	pause := 10 * time.Millisecond
	for range maxDeletes {
		err = outcome(s.conn.Delete(s.wakePath(id), -1))
		if err == nil || errors.Is(err, zk.ErrNoNode) || errors.Is(err, store.ErrRefused) {
			return err
		}
		if s.ctx.Err() != nil && (s.owned || s.conn.State() == zk.StateDisconnected) {
			return err
		}
		time.Sleep(pause)
		pause = min(2*pause, time.Second)
	}
	return err
}

// watch waits until the node of a request is deleted, and tells the request. The
// server tells of a deletion that happened while the connection was broken.
func (s *Store) watch(name, id string, w *wake) {
	for {
		// A watch on a node that is missing would last as long as the session. GetW
		// sets none then.
		_, _, changed, err := s.conn.GetW(s.wakePath(id))
		if err == zk.ErrNoNode {
			s.granted(name, id, w)
			return
		}
		if err != nil {
			break // the node is there as long as the session is
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
	waits := s.wakes[id] == w && !w.busy
	if waits {
		delete(s.wakes, id)
	}
	w.deleted = true
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
