package explore

// client is what client c may do by itself.
func (w World) client(s *state, c int, visit func(step, *state)) {
	k := &s.clients[c]
	do := func(what string, f func(k *client)) {
		t := *s
		f(&t.clients[c])
		visit(step{what, int8(c), -1, int8(k.id), int8(t.clients[c].token)}, &t)
	}
	switch k.phase {
	case idle:
		for proposed := 0; proposed <= w.Proposals && int(k.id) < w.Attempts; proposed++ {
			t := *s
			k := &t.clients[c]
			k.phase, k.age, k.asks[k.id], k.before, k.proposed[k.id] = voting, 0, all, k.known, uint8(proposed)
			visit(step{"asks for the lock, and proposes", int8(c), -1, int8(k.id), int8(proposed)}, &t)
		}
	case voting:
		if votes := k.counting(w); votes.count() >= w.need() {
			do("has a majority", func(k *client) { w.elect(k, votes) })
		}
		do("gives up", (*client).leave)
	case agreeing:
		if k.sure.count() >= w.need() {
			do("reports the grant", func(k *client) {
				k.won = w.Without.Tries && (k.won || k.id == 0)
				if k.phase, k.claim, k.commits = holding, w.validity(k.age), 0; k.claim == 0 {
					k.leave() // too late
				}
			})
		}
		do("gives up", (*client).leave)
	case holding:
		do("releases", (*client).leave)
		if int(k.renewals) < w.Renewals {
			do("renews", func(k *client) {
				k.renewals++
				k.phase, k.age, k.sure, k.lost, k.extends = renewing, 0, 0, 0, all
			})
		}
	case renewing:
		w.renewal(k, do)
	}
}

// counting is the votes that count.
func (k *client) counting(w World) (votes set) {
	for n, token := range k.votes {
		if token != 0 && (k.barred[n] == 0 || w.Without.Exclusion) {
			votes = votes.with(n)
		}
	}
	return votes
}

// elect ends the vote if a majority gave one token, and else begins the second round, in which the
// others give the greatest token.
func (w World) elect(k *client, votes set) {
	k.phase, k.sure = agreeing, 0
	for n := range nodes {
		if !votes.has(n) {
			k.votes[n] = 0
		}
	}
	greatest := max(k.votes[0], k.votes[1], k.votes[2])
	for _, token := range k.votes {
		if same := k.giving(token); token > 0 && same.count() >= w.need() {
			greatest = token
		}
	}
	if votes&k.beside != 0 && !w.Without.Passed {
		greatest = max(k.votes[0], k.votes[1], k.votes[2]) + w.span()
	}
	k.token, k.sure = greatest, k.giving(greatest)
	for n, token := range k.votes {
		if token > 0 && token < greatest && k.sure.count() < w.need() {
			k.commits = k.commits.with(n)
		}
	}
	k.votes, k.beside = [nodes]uint8{}, 0
	if w.Without.Commit {
		k.commits, k.sure = 0, votes
	}
}

// giving is the nodes that voted with that token.
func (k *client) giving(token uint8) (same set) {
	for n, other := range k.votes {
		if other == token {
			same = same.with(n)
		}
	}
	return same
}

// leave releases everywhere, and ends the attempt.
func (k *client) leave() {
	left := client{id: k.id + 1, renewals: k.renewals, known: k.known, barred: k.barred, asks: k.asks, releases: k.releases, restores: k.restores,
		steps: k.steps, proposed: k.proposed, won: k.won}
	left.releases[k.id] = all
	*k = left
}

// renewal is what may come of the answers to one.
func (w World) renewal(k *client, do func(string, func(*client))) {
	switch {
	case k.sure.count() >= w.need():
		do("has renewed", func(k *client) {
			k.phase, k.claim, k.restores[k.id], k.extends = holding, w.validity(k.age), k.restores[k.id]|k.lost, 0
		})
	case k.lost.count() > nodes-w.need():
		do("has lost it", (*client).leave)
	}
}
