package watchdog

// agenda is a binary heap of leases by the moments at which they need something.
type agenda []agendaEntry

// agendaEntry is a lease and its moment: that of its next renewal, which is before its deadline, or its
// deadline if no renewal is planned.
type agendaEntry struct {
	at int64
	l  *Lease
}

// keptCapacity is the capacity below which an agenda keeps its memory.
const keptCapacity = 1024

// set adds l with its moment, or changes the moment of l.
func (a *agenda) set(l *Lease, at int64) {
	if l.pos == 0 {
		*a = append(*a, agendaEntry{})
		l.pos = len(*a)
	}
	a.place(l.pos-1, agendaEntry{at, l})
}

// remove takes l out, if it is in the agenda.
func (a *agenda) remove(l *Lease) {
	if l.pos == 0 {
		return
	}
	s := *a
	i, last := l.pos-1, len(s)-1
	moved := s[last]
	s[last] = agendaEntry{}
	s = s[:last]
	l.pos = 0
	if cap(s) > keptCapacity && len(s) < cap(s)/4 {
		// After many leases have gone at once, their memory goes too.
		s = append(make(agenda, 0, cap(s)/2), s...)
	}
	*a = s
	if i < last {
		s.place(i, moved)
	}
}

// place puts e in place of the entry with index i, or up or down from there.
func (a agenda) place(i int, e agendaEntry) {
	for ; i > 0 && e.at < a[(i-1)/2].at; i = (i - 1) / 2 {
		a.put(i, a[(i-1)/2])
	}
	for {
		child := 2*i + 1
		if child+1 < len(a) && a[child+1].at < a[child].at {
			child++
		}
		if child >= len(a) || e.at <= a[child].at {
			a.put(i, e)
			return
		}
		a.put(i, a[child])
		i = child
	}
}

// put has e at the index i.
func (a agenda) put(i int, e agendaEntry) {
	a[i] = e
	e.l.pos = i + 1
}
