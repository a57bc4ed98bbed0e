package watchdog

// slot has the leases of one class that become due at one moment. A slot stays
// in the map, even without leases, until it fires: entries of the wheel are
// never cancelled, because Timer.Stop of the library races with its dispatcher.
type slot struct {
	slotKey
	leases  leaseList
	grace   int64         // how late the wheel may be
	wheel   *runningWheel // the wheel that has an entry for this slot, or nil
	entryAt int64         // the moment of that entry
}

type slotKey struct {
	at    int64
	class uint8
}

// checkAt returns when the shard's timer takes s from the wheel, or makes its
// leases due if the wheel does not have it.
func (s *slot) checkAt() int64 {
	if s.wheel == nil {
		return s.at
	}
	return s.entryAt + s.grace
}

// schedule makes l due at the given moment or a little earlier. sh.mu is held.
func (sh *shard) schedule(l *Lease, now, due int64) {
	at := quantize(now, due)
	if at <= now {
		sh.makeDue(l)
		return
	}
	key := slotKey{at, l.class}
	s := sh.slots[key]
	if s == nil {
		s = &slot{slotKey: key, grace: graceOf(at - now)}
		sh.slots[key] = s
		sh.toWheel(s, now)
	}
	s.leases.push(l)
}

// toWheel gives s to the wheel for the rest of its wait, or for longestEntry if
// the rest is longer. sh.mu is held.
func (sh *shard) toWheel(s *slot, now int64) {
	s.wheel = nil
	if wait := s.at - now; wait >= shortestEntry {
		s.entryAt = now + min(wait, longestEntry)
		s.wheel = sh.w.wheels.submit(s.entryAt, func() { sh.wheelFired(s) })
	}
	sh.setTimer(s.checkAt())
}

// wheelFired is called by the wheel for its entry of s.
func (sh *shard) wheelFired(s *slot) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if s.wheel == nil || sh.slots[s.slotKey] != s {
		return // the timer was faster, or the shard is closed
	}
	now := sh.w.now()
	switch {
	case s.entryAt-now > earliness:
		// The wall clock was stepped. To give s to the wheel again would fire
		// at once again, so s is left to the timer.
		sh.w.wheels.discard(s.wheel)
		s.wheel = nil
		sh.setTimer(s.checkAt())
	case s.at-now <= earliness:
		sh.release(s)
	case s.leases.n == 0:
		delete(sh.slots, s.slotKey)
	default:
		sh.toWheel(s, now)
	}
}

// checkSlots takes slots from the wheel that it has not fired in time, and
// discards the wheel, unless the whole process was late. It makes the leases of
// slots due whose moment has come. sh.mu is held.
func (sh *shard) checkSlots(now int64, onTime bool) {
	for _, s := range sh.slots {
		if s.wheel != nil && s.checkAt() <= now {
			if onTime {
				sh.w.wheels.discard(s.wheel)
			}
			s.wheel = nil
		}
		if s.checkAt() <= now {
			sh.release(s)
		} else {
			sh.setTimer(s.checkAt())
		}
	}
}

// release makes the leases of s due and removes s. sh.mu is held.
func (sh *shard) release(s *slot) {
	delete(sh.slots, s.slotKey)
	for l := s.leases.pop(); l != nil; l = s.leases.pop() {
		sh.makeDue(l)
	}
}
