package explore

import "slices"

// form is a state in numbers: a row of each client, a column of each node, and what lies between them.
type form struct {
	rest    uint64
	clients [most]uint64
	nodes   [nodes]uint64
	between [most][nodes]uint64
}

// permutations of clients or nodes.
var permutations = [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

// packer puts small numbers into one.
type packer struct{ word uint64 }

func (p *packer) put(n uint8, bits int) { p.word = p.word<<bits | uint64(n) }

func (p *packer) flag(b bool) {
	p.word <<= 1
	if b {
		p.word |= 1
	}
}

// numbers returns the form of a state as it is.
func (s *state) numbers() (f form) {
	f.rest = uint64(s.losses)<<16 | uint64(s.restarts)<<8 | uint64(s.reported)
	for n := range s.nodes {
		d, p := &s.nodes[n], packer{}
		for id := range ids {
			p.put(d.token[id], 6)
			p.put(d.left[id], 6)
		}
		p.put(d.counter, 6)
		p.put(d.young, 6)
		p.flag(d.lost)
		f.nodes[n] = p.word
	}
	for c := range s.clients {
		k, p := &s.clients[c], packer{}
		p.put(uint8(k.phase), 3)
		p.put(k.id, 3)
		p.put(k.renewals, 6)
		p.put(k.age, 6)
		p.put(k.claim, 6)
		p.put(k.token, 6)
		p.flag(k.won)
		for _, token := range k.proposed {
			p.put(token, 6)
		}
		f.clients[c] = p.word
		for n := range s.nodes {
			f.between[c][n] = k.between(c, n, &s.nodes[n])
		}
	}
	return f
}

// between is what concerns one client and one node.
func (k *client) between(c, n int, d *node) uint64 {
	var p packer
	p.put(k.votes[n], 6)
	p.put(uint8(k.known[n]), 2)
	p.put(uint8(k.before[n]), 2)
	p.put(k.barred[n], 6)
	for _, s := range []set{k.beside, k.sure, k.lost, k.commits, k.extends} {
		p.flag(s.has(n))
	}
	for id := range ids {
		for _, s := range []set{k.asks[id], k.steps[id], k.releases[id], k.restores[id]} {
			p.flag(s.has(n))
		}
		p.flag(d.holds(c, uint8(id)))
		p.flag(d.buried[c][id])
	}
	return p.word
}

// canonical returns the least form of the states that differ from this one by the numbers of clients
// and nodes alone. Rows and columns are put in the order of what does not depend on these numbers;
// of those that are equal there, all orders are tried.
func (s *state) canonical() (least form) {
	f := s.numbers()
	var rows [most]uint64
	var columns [nodes]uint64
	for c := range most {
		for n := range nodes {
			rows[c] += mix(f.between[c][n] ^ mix(f.nodes[n]))
			columns[n] += mix(f.between[c][n] ^ mix(f.clients[c]))
		}
		rows[c] += mix(f.clients[c])
	}
	for n := range nodes {
		columns[n] += mix(f.nodes[n])
	}
	first := true
	for _, r := range permutations {
		if !ordered(rows, r) {
			continue
		}
		for _, o := range permutations {
			if !ordered(columns, o) {
				continue
			}
			if g := f.permuted(r, o); first || g.less(&least) {
				least, first = g, false
			}
		}
	}
	return least
}

func ordered(keys [3]uint64, p [3]int) bool {
	return keys[p[0]] <= keys[p[1]] && keys[p[1]] <= keys[p[2]]
}

func mix(x uint64) uint64 {
	x = (x ^ x>>31) * 0x9e3779b97f4a7c15
	return x ^ x>>29
}

func (f *form) permuted(r, o [3]int) form {
	g := form{rest: f.rest}
	for i := range 3 {
		g.clients[i], g.nodes[i] = f.clients[r[i]], f.nodes[o[i]]
		for j := range 3 {
			g.between[i][j] = f.between[r[i]][o[j]]
		}
	}
	return g
}

func (f *form) less(g *form) bool {
	for i := range f.between {
		if d := slices.Compare(f.between[i][:], g.between[i][:]); d != 0 {
			return d < 0
		}
	}
	if d := slices.Compare(f.clients[:], g.clients[:]); d != 0 {
		return d < 0
	}
	return slices.Compare(f.nodes[:], g.nodes[:]) < 0
}
