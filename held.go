package dlock

import (
	"errors"
	"sync"
)

// heldList is the holds of Lock and TryLock, which return none. Each operation
// takes constant time, however many readers hold.
type heldList struct {
	mu   sync.Mutex
	live []*Hold // Hold.index is its place here
	lost []*Hold
}

func (k *heldList) add(h *Hold) {
	k.mu.Lock()
	h.index = len(k.live)
	k.live = append(k.live, h)
	k.mu.Unlock()
	h.core.AtEnd(func(reason error) {
		if errors.Is(reason, ErrLost) {
			k.lose(h)
		}
	})
}

// lose moves a hold to the lost ones, unless it was taken meanwhile.
func (k *heldList) lose(h *Hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.index < len(k.live) && k.live[h.index] == h {
		k.remove(h.index)
		k.lost = append(k.lost, h)
	}
}

// remove takes the i-th live hold out and fills the gap with the last.
func (k *heldList) remove(i int) {
	last := len(k.live) - 1
	k.live[i] = k.live[last]
	k.live[i].index = i
	k.live[last] = nil
	k.live = k.live[:last]
}

// take picks the hold that an Unlock without one means: a live one, unless one has
// been lost. The critical section of a lost hold is void, and its goroutine must not
// release the lock under another that holds it by now. So at worst a live hold is
// released one Unlock later than its own. live reports that another hold is live. A
// lease that has run out before any timer could tell is noticed for the oldest hold and
// for the last.
func (k *heldList) take() (h *Hold, live bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := len(k.lost); n > 0 {
		h = k.lost[n-1]
		k.lost[n-1] = nil
		k.lost = k.lost[:n-1]
		return h, len(k.live) > 0
	}
	i := len(k.live) - 1
	if i < 0 {
		return nil, false
	}
	if i > 0 && !k.live[0].core.Live() {
		i, live = 0, true
	}
	h = k.live[i]
	k.remove(i)
	return h, live
}

func (k *heldList) empty() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.live)+len(k.lost) == 0
}

// sharedLists are the held lists of owners that were named by As, in one mode of one
// lock. A list without holds is not kept.
type sharedLists struct {
	mu    sync.Mutex
	lists map[Owner]*heldList
}

func (s *sharedLists) add(o Owner, h *Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists == nil {
		s.lists = make(map[Owner]*heldList)
	}
	k := s.lists[o]
	if k == nil {
		k = new(heldList)
		s.lists[o] = k
	}
	k.add(h)
}

func (s *sharedLists) take(o Owner) (h *Hold, live bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.lists[o]
	if k == nil {
		return nil, false
	}
	h, live = k.take()
	if k.empty() {
		delete(s.lists, o)
	}
	return h, live
}
