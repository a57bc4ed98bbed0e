package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Plan is all that is drawn of one history.
type Plan struct {
	Seed    uint64
	Scene   Scene
	TTL     time.Duration // by which all other times are measured
	Names   int
	Nodes   int `json:",omitempty"` // of a quorum; 0: the store is one
	Scant   int `json:",omitempty"` // how many tokens the store reserves at most; 0: as many as asked for
	Clients []ClientPlan
	Tasks   []Task
	Deeds   []Deed
	Faults  []Fault
}

// ClientPlan is the options of one client, and how its clock runs.
type ClientPlan struct {
	TTL, WaitTTL, StoreTimeout, MaxHold time.Duration
	Rate                                float64 // of the store's clock by the client's
	LocalHandoffs                       int
}

// Task is a goroutine that takes locks through one client.
type Task struct {
	Client int
	Visits []Visit
}

// Visit is one time that a task takes a lock, and perhaps again inside.
type Visit struct {
	Name     int
	Shared   bool
	Try      bool
	Owner    int // an explicit one, or -1 for a private one
	TTL      time.Duration
	Fixed    bool
	MaxHold  time.Duration
	Think    time.Duration // before
	Patience time.Duration
	Cancel   bool // the patience ends by a cancel rather than by a deadline
	Hold     time.Duration

	Nest       Nest
	NestTry    bool
	NestHold   time.Duration
	OuterFirst bool // unlock the outer hold first
}

// Nest is what a visit takes under its own hold.
type Nest uint8

// The kinds of nesting: none; the same mode once more; as a reader, which under
// a writer's hold is half a downgrade; as a writer, under a reader's an upgrade.
const (
	NoNest Nest = iota
	NestSame
	NestRead
	NestWrite
)

// Deed is what happens to the whole when so many operations have begun.
type Deed struct {
	After int
	Close int // the client to close and open anew, or -1
	Break int // the name whose holds are removed by force, or -1
	Pause time.Duration
}

// Fault is one kind of fault in a plan.
type Fault struct {
	Kind   Kind
	Share  float64       // of the calls or events that meet it
	After  int           // begins when so many operations have begun; 0: always on
	For    time.Duration // lasts so long
	Client int           // only that link; -1: all
	Silent bool          // an outage that says nothing
}

const explicitOwners = 2

// NewPlan draws a plan. The same seed gives the same plan.
func NewPlan(seed uint64) Plan { return newPlan(seed, drawScene(seed), 0) }

// newPlan draws a plan of a scene, with a TTL of at least shortest.
func newPlan(seed uint64, scene Scene, shortest time.Duration) Plan {
	d := drawOf(seed, 0)
	p := Plan{
		Seed:  seed,
		Scene: scene,
		TTL:   max(shortest, pick(d, 200*time.Millisecond, time.Second, 3*time.Second, 30*time.Second)),
		Names: 1 + d.IntN(3),
	}
	for range 2 + d.IntN(7) {
		p.Clients = append(p.Clients, p.client(d))
	}
	operations := 150 + d.IntN(151)
	p.drawTasks(d, operations)
	for range d.IntN(4) {
		deed := Deed{After: d.within(operations), Close: -1, Break: -1, Pause: d.upTo(p.TTL)}
		if d.one(3) {
			deed.Break = d.IntN(p.Names)
		} else {
			deed.Close = d.IntN(len(p.Clients))
		}
		p.Deeds = append(p.Deeds, deed)
	}
	p.drawFaults(d, operations)
	p.drawHaste(drawOf(seed, 1))
	p.stage()
	return p
}

// drawHaste draws how often locks may pass from one task of a client to the next, by
// the client and by the store.
// As they do so only within milliseconds, half of the clients have more tasks
// that are brief about everything.
func (p *Plan) drawHaste(d draw) {
	p.Scant = pick(drawOf(p.Seed, 2), 0, 0, 0, 2, 4)
	for i := range p.Clients {
		p.Clients[i].LocalHandoffs = pick(d, -1, 0, 0, 1, 2, 5)
		if !d.one(2) {
			continue
		}
		var visits []Visit
		for k := range p.Tasks {
			if t := &p.Tasks[k]; t.Client == i {
				visits = append(visits, t.Visits...)
				t.Visits = nil
			}
		}
		tasks := make([]Task, 2+d.IntN(4))
		for k, v := range visits {
			v.Hold, v.NestHold = d.briefly(v.Hold), d.briefly(v.NestHold)
			v.Think = min(v.Think, d.upTo(time.Millisecond))
			if !d.one(3) { // of the kind that passes on
				v.Name, v.Owner, v.TTL, v.Fixed, v.MaxHold = 0, -1, 0, false, 0
				v.Shared, v.Try = d.one(8), d.one(8)
			}
			t := &tasks[k%len(tasks)]
			t.Client, t.Visits = i, append(t.Visits, v)
		}
		p.Tasks = append(p.Tasks, tasks...)
	}
	p.Tasks = slices.DeleteFunc(p.Tasks, func(t Task) bool { return len(t.Visits) == 0 })
}

func (d draw) briefly(t time.Duration) time.Duration {
	if d.one(8) {
		return t
	}
	return min(t, d.upTo(2*time.Millisecond))
}

// over returns the plan for a quorum of so many nodes, which keep no lease that is
// shorter than their messages take, and have time to answer.
func (p Plan) over(nodes int) Plan {
	if nodes > 0 && p.Scene == Many { // for each node, that takes too long
		p = newPlan(p.Seed, Plain, 0)
	}
	if nodes > 0 && p.TTL < time.Second {
		p = newPlan(p.Seed, p.Scene, time.Second)
	}
	for i := range p.Clients {
		if c := &p.Clients[i]; nodes > 0 && c.StoreTimeout < c.TTL {
			c.StoreTimeout = 0
		}
	}
	p.Nodes = nodes
	return p
}

// has: the plan contains a fault of that kind.
func (p *Plan) has(kind Kind) bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == kind })
}

func (p *Plan) client(d draw) ClientPlan {
	c := ClientPlan{TTL: pick(d, p.TTL, p.TTL, 2*p.TTL, p.TTL/2), Rate: 1}
	c.WaitTTL = pick(d, 0, 0, c.TTL/3, 2*c.TTL)
	c.StoreTimeout = pick(d, 0, 0, c.TTL/8, 2*c.TTL)
	if d.one(8) {
		c.MaxHold = 2 * c.TTL
	}
	return c
}

// drawTasks spreads about so many operations over one to three tasks a client.
func (p *Plan) drawTasks(d draw, operations int) {
	for i := range p.Clients {
		for range 1 + d.IntN(3) {
			p.Tasks = append(p.Tasks, Task{Client: i})
		}
	}
	for planned := 0; planned < operations+operations/4; { // some will not get their lock
		v := p.visit(d)
		t := &p.Tasks[d.IntN(len(p.Tasks))]
		t.Visits = append(t.Visits, v)
		planned += 2
		if v.Nest != NoNest {
			planned += 2
		}
	}
}

func (p *Plan) visit(d draw) Visit {
	v := Visit{
		Name:     d.IntN(p.Names),
		Shared:   d.one(3),
		Try:      d.one(5),
		Owner:    -1,
		Think:    pick(d, 0, d.upTo(p.TTL/100), d.upTo(p.TTL/4)),
		Patience: pick(d, 1+d.upTo(p.TTL/4), 20*p.TTL, 20*p.TTL, 20*p.TTL),
		Cancel:   d.one(2),
		Hold:     pick(d, 0, d.upTo(p.TTL/50), d.upTo(p.TTL/50), d.upTo(p.TTL/3)),
		NestTry:  d.one(3),
		NestHold: d.upTo(p.TTL / 10),
	}
	if d.one(7) {
		v.Hold = d.upTo(5 * p.TTL / 2)
	}
	if d.one(5) {
		v.Owner = d.IntN(explicitOwners)
	}
	switch d.IntN(10) {
	case 0:
		v.Fixed = true
		v.Hold = pick(d, v.Hold, 3*p.TTL/2)
	case 1:
		v.MaxHold = p.TTL/2 + d.upTo(p.TTL)
	case 2:
		v.TTL = pick(d, p.TTL/4, 3*p.TTL)
	}
	if d.one(3) {
		v.Nest = pick(d, NestSame, NestRead, NestWrite)
		v.OuterFirst = d.one(2)
	}
	return v
}

// drawFaults makes a tenth of all plans free of faults, half of them have one
// kind, and the rest two. Of these, half have one that cuts the store off: what
// another fault makes a client believe wrongly comes to light when it can no
// longer renew.
func (p *Plan) drawFaults(d draw, operations int) {
	order := d.Perm(len(Kinds))
	kinds := []Kind{Kinds[order[0]], Kinds[order[1]]}
	if cut := pick(d, DropRequest, Mute, Failure, Outage); d.one(2) && kinds[0] != cut {
		kinds[1] = cut
	}
	for _, kind := range kinds[:pick(d, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2)] {
		f := Fault{Kind: kind, Share: 0.02 + d.Float64()*0.2, Client: -1}
		if d.one(4) { // so many that a hold is lost for want of renewals
			f.Share = 0.3 + d.Float64()*0.4
		}
		if d.one(4) && len(p.Clients) > 2 && f.Kind.ofCalls() {
			f.Client = d.IntN(len(p.Clients))
		}
		switch f.Kind {
		case Outage:
			f.Client = d.IntN(len(p.Clients))
			f.For = p.TTL/10 + d.upTo(4*p.TTL)
		case SlowStore:
			f.For = p.TTL/2 + d.upTo(p.TTL)
		case Restart, DataLoss:
			f.For = 1 + pick(d, 0, d.upTo(p.TTL/10), d.upTo(2*p.TTL))
		case Drift, WildClock:
			p.skew(d, f.Kind)
		case LostEvent, DoubledEvent, LateEvent:
			f.Share = 0.2 + d.Float64()*0.8
		}
		if kind == LateEvent { // it is worst when what it tells of is gone before it comes
			for range 4 {
				p.Deeds = append(p.Deeds, Deed{After: d.within(operations), Close: -1, Break: d.IntN(p.Names)})
			}
		}
		if f.For > 0 {
			f.After = d.within(operations)
			f.Silent = d.one(2)
		}
		p.Faults = append(p.Faults, f)
	}
}

// skew sets the clocks. Two rates of one kind would cancel the other's limits,
// so the wild ones win whatever comes first.
func (p *Plan) skew(d draw, kind Kind) {
	for i := range p.Clients {
		rate := 0.99 + d.Float64()*0.0199
		if kind == WildClock {
			rate = pick(d, 0.4+d.Float64()/2, 1.1+2*d.Float64())
		}
		if c := &p.Clients[i]; kind == WildClock || c.Rate == 1 {
			c.Rate = rate
		}
	}
}

// draw is a source of everything in a plan.
type draw struct{ *rand.Rand }

// drawOf is one of the sources of a seed.
func drawOf(seed, source uint64) draw { return draw{rand.New(rand.NewPCG(seed, source))} }

func (d draw) one(in int) bool { return d.IntN(in) == 0 }

func (d draw) upTo(most time.Duration) time.Duration { return time.Duration(d.Int64N(int64(most) + 1)) }

// within draws a moment in the middle of so many operations.
func (d draw) within(operations int) int { return operations/10 + d.IntN(operations/2) }

func pick[T any](d draw, from ...T) T { return from[d.IntN(len(from))] }
