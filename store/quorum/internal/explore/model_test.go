package explore

const (
	nodes  = 3
	most   = 3 // clients
	ids    = 2 // attempts of each
	margin = 1 // how much earlier than asked a node may end a lease
)

// state is everything at one moment. It is comparable, which makes it its own name.
// Times are ticks that are left or have passed, so that what is the same later is
// the same.
type state struct {
	losses, restarts uint8 // that are left
	reported         uint8 // the greatest token
	nodes            [nodes]node
	clients          [most]client
}

type node struct {
	owner   uint8      // client + 1; 0: free
	ids     set        // which attempts of the owner hold
	token   [ids]uint8 // of each hold
	left    [ids]uint8 // of the lease of each
	counter uint8
	lost    bool  // the counter, which then is what the clock says
	young   uint8 // how long until it has been up for a lease
	buried  [most][ids]bool
}

type phase uint8

const (
	idle phase = iota
	voting
	agreeing
	holding
	renewing
)

// life is what a client knows of a node's.
type life uint8

const (
	unknown life = iota
	present
	past // it has restarted since
)

// client is one that takes the lock. Messages to node n are bit n of a set.
type client struct {
	phase    phase
	id       uint8 // which attempt, from 0
	renewals uint8
	age      uint8 // of the round that a claim counts from
	claim    uint8 // what is left of it
	token    uint8
	votes    [nodes]uint8 // tokens
	won      bool         // the first attempt was granted; without Tries only
	beside   set          // nodes whose votes are beside a hold of another attempt
	proposed [ids]uint8   // 0: nothing
	known    [nodes]life
	before   [nodes]life  // when it asked
	barred   [nodes]uint8 // for so long the node's votes do not count
	sure     set
	lost     set

	// On their way.
	asks, releases [ids]set
	steps          [ids]set // the second part of a vote that is asked for by steps
	commits        set
	extends        set
	restores       [ids]set
}

type set uint8

func (s set) has(n int) bool    { return s>>n&1 == 1 }
func (s set) with(n int) set    { return s | 1<<n }
func (s set) without(n int) set { return s &^ (1 << n) }

func (s set) count() (number int) {
	for n := range nodes {
		if s.has(n) {
			number++
		}
	}
	return number
}

const all set = 1<<nodes - 1

// start is the state of a world in which nothing has happened.
func (w World) start() state {
	s := state{losses: uint8(w.Losses), restarts: uint8(w.Restarts)}
	s.nodes[0].counter = uint8(w.Ahead)
	if w.Left {
		s.clients[0].releases[0] = all
		w.grant(&s.nodes[0], 0, 0, 0)
	}
	for c := range w.Clients {
		if w.Left {
			s.clients[c].id = 1
		}
		for n := range nodes {
			if !w.Fresh || c < w.Clients-1 {
				s.clients[c].known[n] = present
			}
		}
	}
	return s
}

// step is what leads from one state to another.
type step struct {
	what        string
	c, n, id, t int8 // of client, node, attempt and token; -1: none
}

// next calls visit with every state that one step leads to.
func (w World) next(s *state, visit func(step, *state)) {
	t := *s
	t.tick(uint8(w.Lease))
	visit(step{"a tick", -1, -1, -1, -1}, &t)
	for n := range s.nodes {
		w.node(s, n, visit)
	}
	for c := range w.Clients {
		w.client(s, c, visit)
		w.messages(s, c, visit)
	}
}

// tick lets time pass for everybody. What is older than a lease is just old.
func (s *state) tick(lease uint8) {
	for n := range s.nodes {
		d := &s.nodes[n]
		for id := range uint8(ids) {
			if down(&d.left[id]); d.left[id] == 0 {
				d.free(id)
			}
		}
		down(&d.young)
	}
	for c := range s.clients {
		k := &s.clients[c]
		if k.phase == voting || k.phase == agreeing || k.phase == renewing {
			k.age = min(k.age+1, lease+1)
		}
		down(&k.claim)
		for n := range k.barred {
			down(&k.barred[n])
		}
	}
}

func down(n *uint8) {
	if *n > 0 {
		*n--
	}
}

// free ends the hold of an attempt, if it has one.
func (d *node) free(id uint8) {
	d.ids, d.token[id], d.left[id] = d.ids.without(int(id)), 0, 0
	if d.ids == 0 {
		d.owner = 0
	}
}

// node is what may happen to node n by itself.
func (w World) node(s *state, n int, visit func(step, *state)) {
	for id := range uint8(ids) {
		if d := &s.nodes[n]; d.ids.has(int(id)) && d.left[id] <= margin {
			t := *s
			t.nodes[n].free(id)
			visit(step{"the lease ends early", int8(d.owner) - 1, int8(n), int8(id), -1}, &t)
		}
	}
	if s.restarts == 0 {
		return
	}
	t := *s
	t.restarts--
	counter := t.nodes[n].counter
	t.nodes[n] = node{young: uint8(w.Lease)}
	if !w.Without.Seed {
		t.nodes[n].counter, t.nodes[n].lost = counter, w.Proposals > 0
	}
	for c := range t.clients {
		k := &t.clients[c]
		for _, l := range []*life{&k.known[n], &k.before[n]} {
			if *l == present {
				*l = past
			}
		}
	}
	visit(step{"it restarts empty", -1, int8(n), -1, -1}, &t)
}

// grant is rules 1, 2 and 3 of the lock model, with a token that was proposed, if it was; 0: no.
func (w World) grant(d *node, c int, id, proposed uint8) (token uint8) {
	if d.buried[c][id] || d.owner != 0 && d.owner != uint8(c)+1 {
		return 0
	}
	d.left[id] = uint8(w.Lease)
	switch {
	case d.holds(c, id):
		return d.token[id]
	case d.owner != 0: // what another attempt has left makes it a re-entry
		d.ids, d.token[id] = d.ids.with(int(id)), d.token[1-id]
		return d.token[id]
	}
	d.owner, d.ids, d.token[id] = uint8(c)+1, d.ids.with(int(id)), d.counter+1
	above := proposed > d.counter && !d.lost
	if above || proposed > 0 && (w.Without.Above || d.lost && w.Without.Counter) {
		d.token[id] = proposed
	}
	w.reserve(d, d.token[id])
	d.lost = false
	return d.token[id]
}

// raise gives a hold a greater token.
func (w World) raise(d *node, id, token uint8) {
	if token > d.token[id] {
		d.token[id] = token
		w.reserve(d, token)
	}
}

// reserve moves the counter to the end of the span of a token.
func (w World) reserve(d *node, token uint8) {
	end := token + w.span() - 1
	if w.Without.Reserve {
		end = token
	}
	d.counter = max(d.counter, end)
}

func (d *node) holds(c int, id uint8) bool { return d.owner == uint8(c)+1 && d.ids.has(int(id)) }
