package explore

// messages is what may happen to those that client c has sent: each arrives, and its
// answer at once, or arrives and the answer is lost, or is lost itself. When it
// arrives is open: late ones are those that others overtake.
func (w World) messages(s *state, c int, visit func(step, *state)) {
	k := &s.clients[c]
	for n := range nodes {
		for id := range uint8(w.Attempts) {
			if k.asks[id].has(n) {
				w.send(s, step{"request", int8(c), int8(n), int8(id), -1}, visit, func(t *state) func() {
					to := &t.clients[c]
					to.asks[id] = to.asks[id].without(n)
					d := &t.nodes[n]
					token, young := w.grant(d, c, w.at(to, id), to.proposed[id]), d.young
					beside := d.ids.count() > 1
					return func() {
						switch {
						case token == 0:
						case w.Steps:
							to.steps[id] = to.steps[id].with(n)
						default:
							w.vote(to, n, id, token, young, beside)
						}
					}
				})
			}
			if k.steps[id].has(n) {
				w.send(s, step{"second step", int8(c), int8(n), int8(id), int8(k.proposed[id])}, visit, func(t *state) func() {
					to, d := &t.clients[c], &t.nodes[n]
					to.steps[id] = to.steps[id].without(n)
					beside := d.ids.count() > 1
					var token uint8
					if at := w.at(to, id); d.holds(c, at) {
						if !beside {
							w.raise(d, at, to.proposed[id])
						}
						token = d.token[at]
					}
					young := d.young
					return func() { w.vote(to, n, id, token, young, beside) }
				})
			}
			if k.releases[id].has(n) {
				w.send(s, step{"release", int8(c), int8(n), int8(id), -1}, visit, func(t *state) func() {
					to := &t.clients[c]
					to.releases[id] = to.releases[id].without(n)
					if d := &t.nodes[n]; d.holds(c, w.at(to, id)) {
						d.free(w.at(to, id))
					}
					t.nodes[n].buried[c][id] = !w.Without.Tries
					return nil
				})
			}
			if k.restores[id].has(n) {
				w.send(s, step{"restoration", int8(c), int8(n), int8(id), -1}, visit, func(t *state) func() {
					to := &t.clients[c]
					to.restores[id] = to.restores[id].without(n)
					w.grant(&t.nodes[n], c, w.at(to, id), 0)
					return nil
				})
			}
		}
		if k.commits.has(n) {
			w.send(s, step{"raising", int8(c), int8(n), int8(k.id), int8(k.token)}, visit, func(t *state) func() {
				to, d := &t.clients[c], &t.nodes[n]
				to.commits = to.commits.without(n)
				at := w.at(to, to.id)
				ok := d.holds(c, at)
				if ok {
					w.raise(d, at, to.token)
					ok = d.token[at] == to.token
				}
				return func() {
					if ok {
						to.sure = to.sure.with(n)
					}
				}
			})
		}
		if k.extends.has(n) {
			w.send(s, step{"renewal", int8(c), int8(n), int8(k.id), -1}, visit, func(t *state) func() {
				to, d := &t.clients[c], &t.nodes[n]
				to.extends = to.extends.without(n)
				at := w.at(to, to.id)
				ok := d.holds(c, at)
				if ok {
					d.left[at] = uint8(w.Lease)
				}
				return func() {
					if ok {
						to.sure = to.sure.with(n)
					} else {
						to.lost = to.lost.with(n)
					}
				}
			})
		}
	}
}

// send visits what may happen to one message. arrive does what it is for and returns
// what its answer does, nil if nobody waits for one.
func (w World) send(s *state, what step, visit func(step, *state), arrive func(*state) func()) {
	t := *s
	answer := arrive(&t)
	if s.losses > 0 {
		if answer != nil {
			u := t
			u.losses--
			lost := what
			lost.what += ", and its answer is lost,"
			visit(lost, &u)
		}
		u := *s
		u.losses--
		arrive(&u)
		u.nodes = s.nodes
		lost := what
		lost.what += " that is lost"
		visit(lost, &u)
	}
	if answer != nil {
		answer()
	}
	visit(what, &t)
}

// vote notes a node's vote, if the request is still waited for.
func (w World) vote(k *client, n int, id, token, young uint8, beside bool) {
	if k.phase != voting || k.id != id {
		return
	}
	if w.judgeLife(k, n, young) {
		if k.votes[n] = token; beside {
			k.beside = k.beside.with(n)
		}
	}
}

// judgeLife decides, by the life that node n leads now, whether its vote counts.
func (w World) judgeLife(k *client, n int, young uint8) bool {
	if w.Without.Exclusion {
		return true
	}
	switch k.known[n] {
	case unknown: // the first contact
		k.barred[n] = young
	case past:
		k.barred[n] = uint8(w.Lease)
	}
	k.known[n] = present
	return k.barred[n] == 0 && k.before[n] != past
}
