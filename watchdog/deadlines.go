package watchdog

// deadlineHeap orders leases by a key that is never later than their deadline.
// It is lazy: a renewal moves the deadline and leaves the key, and whoever
// reaches the key pushes it on. With renewals three times as frequent as
// deadlines, an exact heap would do its work for nothing.
type deadlineHeap []deadlineEntry

type deadlineEntry struct {
	key int64
	l   *Lease
}

// set puts l in, or moves it, with the given key.
func (h *deadlineHeap) set(l *Lease, key int64) {
	if l.pos == 0 {
		*h = append(*h, deadlineEntry{key, l})
		l.pos = len(*h)
		h.up(l.pos - 1)
		return
	}
	i := l.pos - 1
	(*h)[i].key = key
	h.up(i)
	h.down(l.pos - 1)
}

func (h *deadlineHeap) remove(l *Lease) {
	if l.pos == 0 {
		return
	}
	s := *h
	i, last := l.pos-1, len(s)-1
	moved := s[last]
	s[last] = deadlineEntry{}
	*h = s[:last]
	l.pos = 0
	if i == last {
		return
	}
	s[i] = moved
	moved.l.pos = i + 1
	h.up(i)
	h.down(moved.l.pos - 1)
}

func (h *deadlineHeap) up(i int) {
	s := *h
	e := s[i]
	for i > 0 {
		parent := (i - 1) / 2
		if s[parent].key <= e.key {
			break
		}
		s[i] = s[parent]
		s[i].l.pos = i + 1
		i = parent
	}
	s[i] = e
	e.l.pos = i + 1
}

func (h *deadlineHeap) down(i int) {
	s := *h
	e := s[i]
	for {
		child := 2*i + 1
		if child >= len(s) {
			break
		}
		if r := child + 1; r < len(s) && s[r].key < s[child].key {
			child = r
		}
		if e.key <= s[child].key {
			break
		}
		s[i] = s[child]
		s[i].l.pos = i + 1
		i = child
	}
	s[i] = e
	e.l.pos = i + 1
}
