package watchdog

// deadlineHeap is a binary heap of leases ordered by their keys. The key of a
// lease is never later than its deadline. A renewal moves the deadline and leaves
// the key as it is; the shard's timer corrects the key when the key is reached. An
// exact heap would move an entry at each renewal, three times as often.
type deadlineHeap []deadlineEntry

type deadlineEntry struct {
	key int64
	l   *Lease
}

// keptCapacity is the capacity below which the heap keeps its memory.
const keptCapacity = 1024

// set adds l with the given key, or changes the key of l.
func (h *deadlineHeap) set(l *Lease, key int64) {
	if l.pos == 0 {
		*h = append(*h, deadlineEntry{l: l})
		l.pos = len(*h)
	}
	(*h)[l.pos-1].key = key
	h.fix(l.pos - 1)
}

// remove takes l out, if it is in the heap.
func (h *deadlineHeap) remove(l *Lease) {
	if l.pos == 0 {
		return
	}
	s := *h
	i, last := l.pos-1, len(s)-1
	moved := s[last]
	s[last] = deadlineEntry{}
	s = s[:last]
	l.pos = 0
	if cap(s) > keptCapacity && len(s) < cap(s)/4 {
		// After many leases have gone at once, their memory goes too.
		s = append(make(deadlineHeap, 0, cap(s)/2), s...)
	}
	*h = s
	if i < last {
		s[i] = moved
		s.fix(i)
	}
}

// fix moves the entry with index i, whose key may be wrong for its place, up or
// down to its place.
func (h deadlineHeap) fix(i int) {
	e := h[i]
	for i > 0 && e.key < h[(i-1)/2].key {
		h.put(i, h[(i-1)/2])
		i = (i - 1) / 2
	}
	for {
		child := 2*i + 1
		if child+1 < len(h) && h[child+1].key < h[child].key {
			child++
		}
		if child >= len(h) || e.key <= h[child].key {
			break
		}
		h.put(i, h[child])
		i = child
	}
	h.put(i, e)
}

func (h deadlineHeap) put(i int, e deadlineEntry) {
	h[i] = e
	e.l.pos = i + 1
}
