package real

// checkRegister: the tokens that the register took never decrease, no write was
// based on anything but the one before it, and none that was acknowledged is
// missing.
func (e *evidence) checkRegister(j *judgement) {
	versions := map[string]map[string]int{} // name -> writer -> version
	for name, log := range e.Log {
		versions[name] = map[string]int{}
		var newest, written uint64
		version := 0
		for _, a := range log {
			if a.Token < written || a.Write && a.Token < newest {
				j.violation("the register of %q took token %d (write: %v) after %d, and a write with %d", name, a.Token, a.Write, newest, written)
			}
			newest = max(newest, a.Token)
			if !a.Write {
				continue
			}
			written = a.Token
			if a.Base != version {
				j.violation("write %s to %q with token %d is based on version %d, but took the place of %d: an update is lost",
					a.Writer, name, a.Token, a.Base, version)
			}
			version = a.Version
			if _, twice := versions[name][a.Writer]; twice {
				j.violation("write %s to %q happened twice", a.Writer, name)
			}
			versions[name][a.Writer] = a.Version
		}
	}
	for _, r := range e.records {
		if r.Op != opWrite || r.Outcome != done {
			continue
		}
		if got, ok := versions[r.Name][writer(r.Worker, r.Serial)]; !ok || got != r.Version {
			j.violation("write %s to %q was acknowledged as version %d, and the register has it as %d", writer(r.Worker, r.Serial), r.Name, r.Version, got)
		}
	}
}

// checkRefused: who holds is not refused. It would mean that a greater token has
// been used, so that somebody else has been granted what this one still holds. One who has held since before the store
// lost it may use a greater token too, which it got by a nested lock.
func (e *evidence) checkRefused(j *judgement, claims []*believed) {
	if e.Forgets {
		return
	}
	for _, r := range e.records {
		if r.Outcome != refused || r.Op != opRead && r.Op != opWrite {
			continue
		}
		for _, c := range claims {
			if c.worker == r.Worker && c.handle == r.Handle && c.to >= r.Return && e.judged(firstBeside(c, claims), r.Return) &&
				e.stood(c.worker, r.Call, c.to) < margin(e.TTL)/2 {
				j.violation("worker %d held %q with token %d from %d to %d, and its %s with token %d at %d was refused",
					c.worker, c.name, c.token, c.from, c.to, r.Op, r.Token, r.Call)
			}
		}
	}
}

// firstBeside is when c, or one that was held at the same time as c, was first asked for.
func firstBeside(c *believed, claims []*believed) moment {
	asked := c.asked
	for _, other := range claims {
		if other.name == c.name && other.from < c.to && c.from < other.to {
			asked = min(asked, other.asked)
		}
	}
	return asked
}
