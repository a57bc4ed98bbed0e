package watchdog

import "container/heap"

// leaseList is a doubly linked list through the leases themselves. A lease is in at
// most one list. Adding and removing take constant time and allocate nothing.
type leaseList struct {
	head, tail *Lease
	n          int
}

// push adds l, which must be in no list, at the end.
func (s *leaseList) push(l *Lease) {
	l.list, l.prev, l.next = s, s.tail, nil
	if s.tail == nil {
		s.head = l
	} else {
		s.tail.next = l
	}
	s.tail = l
	s.n++
}

// remove takes l out of s. It does nothing if s is nil, which is the list of a lease
// that is in no list.
func (s *leaseList) remove(l *Lease) {
	if s == nil {
		return
	}
	if l.prev == nil {
		s.head = l.next
	} else {
		l.prev.next = l.next
	}
	if l.next == nil {
		s.tail = l.prev
	} else {
		l.next.prev = l.prev
	}
	l.list, l.prev, l.next = nil, nil, nil
	s.n--
}

// agenda is a heap of leases by the moments at which they need something.
type agenda []agendaEntry

// agendaEntry is a lease and its moment: that of its next renewal, which is before its
// deadline, or its deadline if no renewal is planned.
type agendaEntry struct {
	at int64
	l  *Lease
}

// keptCapacity is the capacity below which an agenda keeps its memory.
const keptCapacity = 1024

// set adds l with its moment, or changes the moment of l.
func (a *agenda) set(l *Lease, at int64) {
	if l.pos == 0 {
		heap.Push(a, l)
	}
	(*a)[l.pos-1].at = at
	heap.Fix(a, l.pos-1)
}

// remove takes l out, if it is in the agenda.
func (a *agenda) remove(l *Lease) {
	if l.pos != 0 {
		heap.Remove(a, l.pos-1)
	}
}

// Len, Less, Swap, Push and Pop are for package heap.
func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at < a[j].at }
func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].l.pos, a[j].l.pos = i+1, j+1
}

func (a *agenda) Push(l any) {
	*a = append(*a, agendaEntry{l: l.(*Lease), at: never})
	l.(*Lease).pos = len(*a)
}

func (a *agenda) Pop() any {
	s := *a
	last := s[len(s)-1].l
	last.pos = 0
	s[len(s)-1] = agendaEntry{}
	s = s[:len(s)-1]
	if cap(s) > keptCapacity && len(s) < cap(s)/4 {
		// After many leases have gone at once, their memory goes too.
		s = append(make(agenda, 0, cap(s)/2), s...)
	}
	*a = s
	return last
}
