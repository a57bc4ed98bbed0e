package model

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Find looks for an order that the model allows until the bound of time is over. Porcupine follows one order as far as it
// goes, and changes its last decision first. So where much is unknown, a wrong decision of the beginning stays for too long.
// Find goes through time with many orders at once, of which it keeps the width in which the fewest calls without an answer,
// and ends of leases, had an effect.
//
// An order that it finds is proof, as Porcupine confirms it. If it finds none there may be one all the same: the width
// is limited, and what changes nothing is only placed when it was answered or ends.
func Find(operations []porcupine.Operation, width int, bound time.Duration) bool {
	f := &finder{
		operations: operations, width: width, memory: 100_000, ends: time.Now().Add(bound),
		numbers: map[string]int{}, steps: map[[2]int]int{},
	}
	order := f.find()
	if order == nil {
		return false
	}
	sequence := narrowed(operations, order)
	return sequence != nil && Allows(sequence, bound)
}

type finder struct {
	operations []porcupine.Operation
	width      int
	memory     int // how many states are remembered before those that no row is at are forgotten
	ends       time.Time
	states     []*lockState
	numbers    map[string]int // the index in states of each state, by its text
	steps      map[[2]int]int // of a state and an operation: the state after it, or impossible
}

const impossible = -1

// row is an order up to a moment.
type row struct {
	state  int
	open   []int // operations that have begun and are not in the order, sorted
	last   *link
	doubts int // how many calls without an answer, and ends of leases, changed something
}

// link is the last operation of an order; the others are before it.
type link struct {
	operation int
	before    *link
}

// find returns an order of the operations, without those that need not have happened; nil if it finds none.
func (f *finder) find() (order []int) {
	type event struct {
		at        int64
		operation int
		end       bool
	}
	var events []event
	for i, o := range f.operations {
		events = append(events, event{o.Call, i, false}, event{o.Return, i, true})
	}
	slices.SortFunc(events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(oneIf(a.end), oneIf(b.end)), cmp.Compare(a.operation, b.operation))
	})
	rows := []*row{{state: f.number(&lockState{})}}
	for _, e := range events {
		switch s := f.step(e.operation); {
		case !e.end:
			for _, r := range rows {
				at, _ := slices.BinarySearch(r.open, e.operation)
				r.open = slices.Insert(slices.Clone(r.open), at, e.operation)
			}
		case s.Open:
		case s.Maybe:
			for _, r := range rows {
				r.open = omit(r.open, e.operation)
			}
			rows = f.best(rows, e.operation)
		default:
			rows = f.place(rows, e.operation)
			f.forget(rows)
		}
		if len(rows) == 0 {
			return nil
		}
	}
	for l := rows[0].last; l != nil; l = l.before {
		order = append(order, l.operation)
	}
	slices.Reverse(order)
	return order
}

func (f *finder) step(operation int) *Step { return f.operations[operation].Input.(*Step) }

// place continues rows until the operation is in each. What was not answered goes before it only if it changes something.
func (f *finder) place(rows []*row, operation int) (done []*row) {
	seen := map[string]bool{}
	for len(rows) > 0 && len(done) < f.width {
		if time.Now().After(f.ends) {
			return nil
		}
		var more []*row
		for _, r := range rows {
			r = f.observe(r)
			if key := r.key(); seen[key] {
				continue
			} else {
				seen[key] = true
			}
			if !slices.Contains(r.open, operation) {
				done = append(done, r)
				continue
			}
			for _, o := range r.open {
				if next := f.after(r.state, o); next != impossible && (next != r.state || o == operation) {
					more = append(more, f.with(r, o, next))
				}
			}
		}
		rows = f.best(more, operation)
	}
	return f.best(done, operation)
}

// observe places at once what was answered, is true now and changes nothing.
func (f *finder) observe(r *row) *row {
	for {
		i := slices.IndexFunc(r.open, func(o int) bool {
			kind := f.step(o).Kind
			return (kind == Answered || kind == Told) && f.after(r.state, o) == r.state
		})
		if i < 0 {
			return r
		}
		r = f.with(r, r.open[i], r.state)
	}
}

// with is r and an operation after it.
func (f *finder) with(r *row, operation, state int) *row {
	kind := f.step(operation).Kind
	doubtful := kind != Answered && kind != Told && state != r.state
	return &row{
		state: state, open: omit(r.open, operation), last: &link{operation, r.last}, doubts: r.doubts + oneIf(doubtful),
	}
}

// key is the same for rows that can go on alike.
func (r *row) key() string {
	text := binary.AppendUvarint(nil, uint64(r.state))
	for _, o := range r.open {
		text = binary.AppendUvarint(text, uint64(o))
	}
	return string(text)
}

// best are as many rows as the width, those with the fewest doubts, without those that another one covers.
func (f *finder) best(rows []*row, placing int) (kept []*row) {
	slices.SortStableFunc(rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.doubts, b.doubts), cmp.Compare(len(b.open), len(a.open)))
	})
	byState := map[int][]*row{}
	for _, r := range rows {
		if len(kept) == f.width {
			break
		}
		if !slices.ContainsFunc(byState[r.state], func(other *row) bool { return f.covers(other, r, placing) }) {
			byState[r.state] = append(byState[r.state], r)
			kept = append(kept, r)
		}
	}
	return kept
}

// covers: a can go on in each way in which b can, from the same state, as far as Find tries them. What a has open and b has
// not either need not happen or changes nothing now, and it is not what is being placed.
func (f *finder) covers(a, b *row, placing int) bool {
	i := 0
	for _, o := range a.open {
		if i < len(b.open) && b.open[i] == o {
			i++
		} else if s := f.step(o); o == placing || !s.Open && !s.Maybe && f.after(a.state, o) != a.state {
			return false
		}
	}
	return i == len(b.open)
}

// after is the state after an operation, or impossible.
func (f *finder) after(state, operation int) int {
	key := [2]int{state, operation}
	next, known := f.steps[key]
	if !known {
		next = impossible
		if ok, l := f.states[state].step(f.step(operation)); ok {
			next = f.number(l.(*lockState))
		}
		f.steps[key] = next
	}
	return next
}

func (f *finder) number(l *lockState) int {
	text := l.text()
	n, known := f.numbers[text]
	if !known {
		n = len(f.states)
		f.states = append(f.states, l)
		f.numbers[text] = n
	}
	return n
}

// forget frees what is remembered of states, when there are many, but for those of the rows.
func (f *finder) forget(rows []*row) {
	if len(f.states) < f.memory {
		return
	}
	states := f.states
	f.states, f.numbers, f.steps = nil, map[string]int{}, map[[2]int]int{}
	for _, r := range rows {
		r.state = f.number(states[r.state])
	}
}

// text is the same for equal states only.
func (l *lockState) text() string {
	var text []byte
	add := func(numbers ...int) {
		for _, n := range numbers {
			text = binary.AppendVarint(text, int64(n))
		}
	}
	add(int(l.top), oneIf(l.over), len(l.holds), len(l.queue))
	for _, h := range l.holds {
		add(h.id, h.owner, oneIf(h.shared), int(h.token), int(h.after), oneIf(h.promoted), h.place, len(h.leases))
		text = append(text, h.leases...)
	}
	for _, p := range l.queue {
		add(p.id, p.owner, oneIf(p.shared), p.lease, int(p.promise))
	}
	for _, b := range l.buried {
		add(b.id, b.n)
	}
	return string(text)
}

// narrowed are the operations of an order, each at one moment of its own time, so that Porcupine has one order to try. They
// are nil if one has no such moment, is there twice, or is left out though it happened.
func narrowed(operations []porcupine.Operation, order []int) (all []porcupine.Operation) {
	var times []int64
	for _, o := range operations {
		times = append(times, o.Call, o.Return)
	}
	slices.Sort(times)
	rank := func(at int64) int64 {
		i, _ := slices.BinarySearch(times, at)
		return int64(i) * int64(len(operations))
	}
	now := int64(0)
	for i, o := range order {
		now = max(now, rank(operations[o].Call))
		if now > rank(operations[o].Return) || slices.Contains(order[:i], o) {
			return nil
		}
		all = append(all, porcupine.Operation{Input: operations[o].Input, Call: now + int64(i), Return: now + int64(i)})
	}
	for i, o := range operations {
		if s := o.Input.(*Step); !s.Open && !s.Maybe && !slices.Contains(order, i) {
			return nil
		}
	}
	return all
}

func omit(list []int, x int) []int {
	return slices.DeleteFunc(slices.Clone(list), func(y int) bool { return x == y })
}

func oneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}
