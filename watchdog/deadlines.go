package watchdog

import "container/heap"

// deadlineHeap is a heap of leases ordered by their keys. The key of a lease is
// never later than its deadline. A renewal moves the deadline and leaves the key
// as it is; the shard's timer corrects the key when the key is reached. An exact
// heap would move an entry at each renewal, three times as often.
type deadlineHeap []*Lease

// keptCapacity is the capacity below which the heap keeps its memory.
const keptCapacity = 1024

// set adds l with the given key, or changes the key of l.
func (h *deadlineHeap) set(l *Lease, key int64) {
	l.key = key
	if l.pos == 0 {
		heap.Push(h, l)
	} else {
		heap.Fix(h, l.pos-1)
	}
}

// remove takes l out, if it is in the heap.
func (h *deadlineHeap) remove(l *Lease) {
	if l.pos == 0 {
		return
	}
	heap.Remove(h, l.pos-1)
	if s := *h; cap(s) > keptCapacity && len(s) < cap(s)/4 {
		// After many leases have gone at once, their memory goes too.
		*h = append(make(deadlineHeap, 0, cap(s)/2), s...)
	}
}

// Len, Less, Swap, Push and Pop are for container/heap alone.

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, j int) bool { return h[i].key < h[j].key }

func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i+1, j+1
}

func (h *deadlineHeap) Push(x any) {
	l := x.(*Lease)
	*h = append(*h, l)
	l.pos = len(*h)
}

func (h *deadlineHeap) Pop() any {
	s := *h
	l := s[len(s)-1]
	s[len(s)-1] = nil
	*h = s[:len(s)-1]
	l.pos = 0
	return l
}
