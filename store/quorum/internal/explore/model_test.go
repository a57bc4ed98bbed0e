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
	owner   uint8 // client + 1; 0: free
	id      uint8 // which attempt of the owner
	token   uint8 // of the hold
	left    uint8 // of the lease
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
	for c := range w.Clients {
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
		if down(&d.left); d.left == 0 {
			d.free()
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

func (d *node) free() { d.owner, d.id, d.token, d.left = 0, 0, 0, 0 }

// node is what may happen to node n by itself.
func (w World) node(s *state, n int, visit func(step, *state)) {
	if d := &s.nodes[n]; d.owner != 0 && d.left <= margin {
		t := *s
		t.nodes[n].free()
		visit(step{"the lease ends early", int8(d.owner) - 1, int8(n), int8(d.id), -1}, &t)
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

// grant is rules 1 and 3 of the lock model, with a token that was proposed, if it was; 0: no.
func (w World) grant(d *node, c int, id, proposed uint8) (token uint8) {
	mine := d.holds(c, id)
	if d.buried[c][id] || d.owner != 0 && !mine {
		return 0
	}
	d.left = uint8(w.Lease)
	if mine {
		return d.token
	}
	d.owner, d.id, d.token = uint8(c)+1, id, d.counter+1
	above := proposed > d.counter && !d.lost
	if above || proposed > 0 && (w.Without.Above || d.lost && w.Without.Counter) {
		d.token = proposed
	}
	w.reserve(d)
	d.lost = false
	return d.token
}

// raise gives the hold a greater token.
func (w World) raise(d *node, token uint8) {
	if token > d.token {
		d.token = token
		w.reserve(d)
	}
}

// reserve moves the counter to the end of the span of the hold's token.
func (w World) reserve(d *node) {
	end := d.token + w.span() - 1
	if w.Without.Reserve {
		end = d.token
	}
	d.counter = max(d.counter, end)
}

func (d *node) holds(c int, id uint8) bool { return d.owner == uint8(c)+1 && d.id == id }
