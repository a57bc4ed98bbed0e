package real

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dlock-go/dlock/integration/model"
)

// search bounds the time of each of the last three attempts to find an order for one name.
const search = time.Minute

// checkModel has Porcupine decide for each name whether what the store has
// answered has an order that the model allows.
func (e *evidence) checkModel(j *judgement) {
	scripts := e.scripts()
	for _, name := range slices.Sorted(maps.Keys(scripts)) {
		s := scripts[name]
		switch verdict, stuck := s.decide(); verdict {
		case model.Illegal:
			j.violation("the store's answers on %q have no order that the model allows: %s", name, stuck)
		case model.Undecided:
			j.undecided = append(j.undecided, fmt.Sprintf("no decision in time whether the %d calls of the store on %q have an order", s.calls, name))
		}
		j.ordered += s.calls
	}
}

// decide looks for an order in which calls took effect shortly before they were
// answered, and what is doubtful did not happen, then for others: one is proof
// enough, and the nearer an order is to that of the answers the sooner it is found.
// Next it follows many orders at once. At last Porcupine considers all in which what is doubtful happened.
func (s *script) decide() (model.Verdict, string) {
	s.write()
	for _, before := range []time.Duration{2, 10, 50, 250, 1000} {
		for _, believing := range []bool{false, true} {
			if model.Allows(s.operations(before*time.Millisecond, believing), search/60) {
				return model.Legal, ""
			}
		}
	}
	for _, width := range []int{300, 3000} {
		if model.Find(s.operations(0, true), width, search) {
			return model.Legal, ""
		}
	}
	return model.Check(s.operations(0, true), search)
}

// script is the calls of the store on one name.
type script struct {
	e        *evidence
	attempts map[string]*attempt // by id
	steps    []timed
	calls    int
	numbers  map[string]int // of ids and owners
}

// attempt is all that is known of one id.
type attempt struct {
	id     int
	worker int
	calls  []*request // by the time at which they were sent
	events []record
}

// request is one call of the store, of a renewal one hold of it.
type request struct {
	record
	n int // the number that its lease has
}

// certain: its client knows what became of it. A request that is refused because
// its id was buried, or given up here meanwhile, may have been granted all the same.
func (c *request) certain() bool {
	return c.Outcome != unknown && (c.Op != opAcquire || c.Outcome != lost)
}

// gives: it is certain that it gave or renewed a lease.
func (c *request) gives() bool {
	return c.Op == opAcquire && (c.Outcome == held || c.Outcome == queued) || c.Op == opRenew && c.Outcome == done
}

// scripts are those of all names, up to the moment from which on another copy of
// the data may be what the store answers from.
func (e *evidence) scripts() map[string]*script {
	all := map[string]*script{}
	names := map[string]string{} // by id
	for _, r := range e.sent() {
		s := all[r.Name]
		if s == nil {
			s = &script{e: e, attempts: map[string]*attempt{}, numbers: map[string]int{}}
			all[r.Name] = s
		}
		a := s.attempts[r.ID]
		if a == nil {
			a = &attempt{id: s.number(r.ID), worker: r.Worker}
			s.attempts[r.ID] = a
		}
		names[r.ID] = r.Name
		s.calls++
		a.calls = append(a.calls, &request{r, s.calls})
	}
	for _, r := range e.records {
		if s := all[names[r.ID]]; r.Op == opEvent && r.Token != 0 && s != nil && r.Call < e.Ends {
			s.attempts[r.ID].events = append(s.attempts[r.ID].events, r)
		}
	}
	return all
}

// sent are all calls of the store, each once. Those that had no answer by the end
// are of unknown outcome.
func (e *evidence) sent() (calls []record) {
	type sending struct {
		worker int
		op, id string
		call   moment
	}
	at := map[sending]int{}
	for _, r := range e.records {
		if !r.isCall() || r.Call >= e.Ends {
			continue
		}
		if r.Return == 0 || r.Return >= e.Ends {
			r.Outcome, r.Return = unknown, never
		}
		if r.Op == opRelease && r.Outcome == refused {
			r.Outcome = unknown // etcd, out of space, cannot bury, but deletes
		}
		key := sending{r.Worker, r.Op, r.ID, r.Call}
		i, twice := at[key]
		if !twice {
			at[key] = len(calls)
			calls = append(calls, r)
		} else if r.Outcome != unknown || r.Return < calls[i].Return {
			calls[i] = r
		}
	}
	return calls
}

func (s *script) number(id string) int {
	n, ok := s.numbers[id]
	if !ok {
		n = len(s.numbers) + 1
		s.numbers[id] = n
	}
	return n
}
