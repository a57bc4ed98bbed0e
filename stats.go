package dlock

// Stats are gauges of one client at one moment. All are zero when no call is under way, every
// hold has been unlocked, and the store has confirmed every release.
type Stats struct {
	Names    int // names that this client holds, waits for or is asking about
	Holds    int // holds at the store
	Waiters  int // calls that wait
	Calls    int // lock calls and store calls under way
	Places   int // requests queued at the store that listen for wake-ups
	Releases int // releases in the background that the store has not confirmed yet
}

// Stats returns the gauges of c. They are read one after another, so they may disagree while
// calls are under way.
func (c *Client) Stats() Stats {
	s := Stats{
		Waiters:  int(c.waiters.Load()),
		Calls:    int(c.calls.n.Load()),
		Releases: c.cleaner.left(),
	}
	for i := range c.names.shards {
		sh := &c.names.shards[i]
		sh.mu.Lock()
		s.Names += len(sh.names)
		for _, l := range sh.names {
			s.Holds += l.holds()
		}
		sh.mu.Unlock()
	}
	for i := range c.pushes.shards {
		sh := &c.pushes.shards[i]
		sh.mu.Lock()
		s.Places += len(sh.waiting)
		sh.mu.Unlock()
	}
	return s
}

// holds counts the holds at the store of one name. The shard is locked.
func (l *local) holds() int {
	seen := make(map[*tenure]bool)
	for _, p := range l.parties {
		for _, g := range p.grants {
			seen[g.tenure] = true
		}
	}
	return len(seen)
}
