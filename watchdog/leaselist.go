package watchdog

// leaseList is a doubly linked list through the leases themselves. A lease is
// in at most one list. Adding and removing take constant time and allocate
// nothing.
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

// remove takes l out of s. It does nothing if s is nil, which is the list of a
// lease that is in no list.
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

// pop removes the first lease and returns it, or nil if s is empty.
func (s *leaseList) pop() *Lease {
	l := s.head
	if l != nil {
		s.remove(l)
	}
	return l
}
