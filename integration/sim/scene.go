package sim

// Scene is what a history is about, beside its faults.
type Scene string

// The scenes. Most histories are plain.
const (
	Plain Scene = "plain"
	Ratio Scene = "default ratio" // all leases and places last as by default, 30 s to 5 s
	Crowd Scene = "crowd"         // a few explicit owners act everywhere at once
	Long  Scene = "long holds"    // some holds outlive hundreds of leases
	Many  Scene = "many names"    // one client holds thousands of names at once
)

// Scenes are all scenes, in the order of the report.
var Scenes = []Scene{Plain, Ratio, Crowd, Long, Many}

const (
	crowdOwners = 5    // explicit owners in a crowd
	manyNames   = 2400 // more than a batch of renewals for each part of a client
	longest     = 400  // leases that a hold outlives
)

// drawScene draws the scene of a seed.
func drawScene(seed uint64) Scene {
	d := drawOf(seed, 4)
	switch n := d.IntN(1000); { // the last two take long
	case n < 60:
		return Ratio
	case n < 140:
		return Crowd
	case n < 170:
		return Long
	case n < 175:
		return Many
	}
	return Plain
}

// stage changes a plain plan into one of its scene. Half of these have neither faults nor
// deeds: where nothing happens, no hold may be lost.
func (p *Plan) stage() {
	d := drawOf(p.Seed, 5)
	if p.Scene != Plain && d.one(2) {
		p.Faults, p.Deeds = nil, nil
		for i := range p.Clients {
			p.Clients[i].Rate = 1
		}
	}
	switch p.Scene {
	case Ratio:
		p.stageRatio(d)
	case Crowd:
		p.eachVisit(func(v *Visit) {
			v.Name, v.Owner = min(v.Name, d.IntN(2)), d.IntN(crowdOwners)
			v.TTL, v.Fixed, v.MaxHold = 0, false, 0
			v.Think, v.Hold, v.NestHold = d.upTo(p.TTL/50), d.upTo(p.TTL/50), d.upTo(p.TTL/50)
		})
	case Long:
		p.stageLong(d)
	case Many:
		p.stageMany(d)
	}
}

func (p *Plan) stageRatio(d draw) {
	for i := range p.Clients {
		c := &p.Clients[i]
		c.TTL, c.WaitTTL, c.StoreTimeout, c.MaxHold = p.TTL, p.TTL/6, 0, 0
	}
	p.eachVisit(func(v *Visit) {
		v.TTL, v.Fixed, v.MaxHold = 0, false, 0
		v.Hold = pick(d, v.Hold, d.upTo(p.TTL/2))
	})
}

// stageLong has a task of its own hold a name of its own for hundreds of leases, and
// another wait for it.
func (p *Plan) stageLong(d draw) {
	name := p.Names
	p.Names++
	for range 2 {
		client := d.IntN(len(p.Clients))
		p.Clients[client].MaxHold = 0
		p.Tasks = append(p.Tasks, Task{Client: client, Visits: []Visit{{
			Name: name, Owner: -1, Shared: d.one(4), Think: d.upTo(p.TTL), Patience: 2 * longest * p.TTL,
			Hold: longest/4*p.TTL + d.upTo(longest*3/4*p.TTL),
		}}})
	}
}

// stageMany has one client hold thousands of names beside those of the others.
func (p *Plan) stageMany(d draw) {
	p.Clients[0].MaxHold = 0
	for i := range manyNames {
		p.Tasks = append(p.Tasks, Task{Client: 0, Visits: []Visit{{
			Name: p.Names + i, Owner: -1, Think: d.upTo(p.TTL / 100), Patience: 20 * p.TTL, Hold: p.TTL + d.upTo(p.TTL),
		}}})
	}
	p.Names += manyNames
}

func (p *Plan) eachVisit(f func(*Visit)) {
	for i := range p.Tasks {
		for k := range p.Tasks[i].Visits {
			f(&p.Tasks[i].Visits[k])
		}
	}
}

// groundless: nothing has happened in this plan that a hold of the visit may be lost by.
func (p *Plan) groundless(client int, v Visit) bool {
	return p.Nodes == 0 && len(p.Faults) == 0 && len(p.Deeds) == 0 && v.Owner < 0 && !v.Fixed &&
		v.MaxHold == 0 && p.Clients[client].MaxHold == 0
}
