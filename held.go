package dlock

import (
	"errors"
	"sync"
)

// heldLists are the holds of Lock and TryLock, which return none, for Unlock to find.
// The values that As makes of a lock share them: so m.As(o).Lock and m.As(o).Unlock
// belong together. Holds of the value itself are under the zero Owner.
type heldLists struct {
	mu    sync.Mutex
	lists map[Owner]*heldList
}

// heldList is the holds of one owner. Each operation takes constant time, however many
// readers hold.
type heldList struct {
	live []*Hold // Hold.index is its place here
	lost []*Hold
}

func (k *heldLists) add(o Owner, h *Hold) {
	k.mu.Lock()
	list := k.lists[o]
	if list == nil {
		if k.lists == nil {
			k.lists = make(map[Owner]*heldList)
		}
		list = new(heldList)
		k.lists[o] = list
	}
	h.index = len(list.live)
	list.live = append(list.live, h)
	k.mu.Unlock()
	h.core.AtEnd(func(reason error) {
		if errors.Is(reason, ErrLost) {
			k.lose(list, h)
		}
	})
}

// lose moves a hold to the lost ones, unless it was taken meanwhile.
func (k *heldLists) lose(list *heldList, h *Hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.index < len(list.live) && list.live[h.index] == h {
		list.remove(h.index)
		list.lost = append(list.lost, h)
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

// take picks the hold that an Unlock for that owner means: a live one, unless one has
// been lost. The critical section of a lost hold is void, and its goroutine must not
// release the lock under another that holds it by now. So at worst a live hold is
// released one Unlock later than its own. live reports that another hold is live. A
// lease that has run out before any timer could tell is noticed for the first hold of the
// list and for the last.
func (k *heldLists) take(o Owner) (h *Hold, live bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := k.lists[o]
	if list == nil {
		return nil, false
	}
	if n := len(list.lost); n > 0 {
		h, live = list.lost[n-1], len(list.live) > 0
		list.lost[n-1] = nil
		list.lost = list.lost[:n-1]
	} else if i := len(list.live) - 1; i >= 0 {
		if i > 0 && !list.live[0].core.Live() {
			live = list.live[i].core.Live() // after Close none is
			i = 0
		}
		h = list.live[i]
		list.remove(i)
	}
	// Owners come and go, while the value itself is locked again and again.
	if len(list.live)+len(list.lost) == 0 && o.valid() {
		delete(k.lists, o)
	}
	return h, live
}
