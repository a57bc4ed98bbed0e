package explore

import (
	"fmt"
	"hash/maphash"
	"strings"
)

// Result is what an exploration has found.
type Result struct {
	States int
	Broken string   // which promise, "" if none
	Steps  []string // the shortest way to that
	Cut    bool     // there are more states than were to be visited
}

// String is for people: one step a line.
func (r Result) String() string {
	switch {
	case r.Broken != "":
		return fmt.Sprintf("%s, %d states:\n  %s", r.Broken, r.States, strings.Join(r.Steps, "\n  "))
	case r.Cut:
		return fmt.Sprintf("nothing found in %d states, and there are more", r.States)
	}
	return fmt.Sprintf("nothing found in %d states, which are all", r.States)
}

// visited is how a state was reached first. States themselves are kept until what
// follows from them is known; who they are is known by their hashes.
type visited struct {
	from int32
	step step
}

// Explore visits every state of the world, those first that take the fewest steps,
// until a promise is broken or so many have been visited.
func (w World) Explore(limit int) (r Result) {
	seed := maphash.MakeSeed()
	first := w.start()
	seen := map[uint64]struct{}{maphash.Comparable(seed, first.canonical()): {}}
	all := []visited{{from: -1}}
	at, front := int32(0), []state{first} // front[0] is all[at]
	for len(front) > 0 && r.Broken == "" {
		var next []state
		for i := range front {
			before := &front[i]
			w.next(before, func(how step, s *state) {
				if r.Broken != "" {
					return
				}
				r.Broken = w.judge(before, s)
				s.forget(w)
				hash := maphash.Comparable(seed, s.canonical())
				if _, ok := seen[hash]; ok && r.Broken == "" {
					return
				}
				if r.Broken == "" && len(all) >= limit {
					r.Cut = true
					return
				}
				seen[hash] = struct{}{}
				all = append(all, visited{at + int32(i), how})
				next = append(next, *s)
			})
			if r.Broken != "" {
				r.Steps = way(all)
				break
			}
		}
		at, front = at+int32(len(front)), next
	}
	r.States = len(all)
	return r
}

// judge says which promise a step has broken, and notes the token that was reported.
func (w World) judge(before, s *state) string {
	holders := 0
	for c := range w.Clients {
		if s.clients[c].claim > 0 {
			holders++
		}
	}
	if holders > 1 {
		return "two clients hold the lock"
	}
	for c := range w.Clients {
		if before.clients[c].phase != agreeing || s.clients[c].phase != holding {
			continue
		}
		token := s.clients[c].token
		if token <= before.reported {
			return fmt.Sprintf("token %d is reported after %d", token, before.reported)
		}
		s.reported = token + w.span() - 1
	}
	return ""
}

// forget drops what can make no difference any more, so that states that are
// equal in all that matters are equal.
func (s *state) forget(w World) {
	for c := range s.clients {
		k := &s.clients[c]
		switch k.phase {
		case idle:
			k.age = 0
		case holding, renewing:
			k.before = [nodes]life{}
			if k.claim == 0 { // its watchdog has told it
				k.leave()
			} else if k.phase == holding {
				k.age, k.sure, k.lost, k.extends, k.token = 0, 0, 0, 0, 0
			}
		case voting, agreeing:
			if w.validity(k.age) == 0 {
				k.leave() // it would be too late
			}
		}
		for id := range k.releases {
			for n := range s.nodes {
				d := &s.nodes[n]
				at, over := w.at(k, uint8(id)), k.id > uint8(id)
				more := w.Without.Tries && k.phase == idle && int(k.id) < w.Attempts // with the same id
				if d.buried[c][id] && !k.releases[id].has(n) {                       // nothing of it can be granted any more
					k.asks[id], k.restores[id] = k.asks[id].without(n), k.restores[id].without(n)
				}
				coming := k.asks[id].has(n) || k.restores[id].has(n) || w.Without.Tries && (k.asks[0]|k.asks[1]).has(n)
				if !coming && !d.holds(c, at) && (over || k.phase != voting) { // nor is there a hold to change
					k.steps[id] = k.steps[id].without(n)
				}
				if over && !coming && !more && !d.holds(c, at) { // nor is there anything to release
					k.releases[id] = k.releases[id].without(n)
				}
				if !coming {
					d.buried[c][id] = false
				}
			}
		}
		for id := range k.proposed {
			if k.asks[id]|k.steps[id] == 0 {
				k.proposed[id] = 0
			}
		}
		done := k.phase == idle && int(k.id) >= w.Attempts
		if done { // it will ask nobody again
			k.known, k.barred, k.renewals = [nodes]life{}, [nodes]uint8{}, 0
		}
	}
	if !w.Fresh {
		for n := range s.nodes {
			s.nodes[n].young = 0
		}
	}
}

func way(list []visited) (steps []string) {
	for i := int32(len(list) - 1); list[i].from >= 0; i = list[i].from {
		steps = append([]string{list[i].step.String()}, steps...)
	}
	return steps
}

// String names those that take part in it.
func (s step) String() string {
	text := s.what
	for _, part := range []struct {
		name   string
		number int8
	}{{"client", s.c}, {"attempt", s.id}, {"node", s.n}, {"token", s.t}} {
		if part.number >= 0 && (part.name != "token" || part.number > 0) {
			text += fmt.Sprintf(" %s %d", part.name, part.number)
		}
	}
	return text
}
