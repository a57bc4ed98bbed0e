package peers

import "testing"

// order is what became of the tokens of one name.
type order struct {
	grants, fallen int
	some           bool // there are tokens
}

// tokens has two clients take one lock in turns, and each node in its turn lose
// all keys while it is held. The next node does so when the holds of the one
// before are gone, for what a majority has lost is lost.
func (m *masters) tokens(t testing.TB, l majority, turns int) (o order) {
	t.Helper()
	both := []client{m.open(t, l, m.addrs()), m.open(t, l, m.addrs())}
	var last uint64
	for i := range turns * (len(m.servers) + 1) {
		h := prepare(t, both[i%2], "tokens")
		o.grants++
		token := h.Token()
		o.some = o.some || token > 0
		if token <= last {
			o.fallen++
		}
		last = token
		if i%turns == turns-1 && i/turns < len(m.servers) {
			m.servers[i/turns].MustDo("FLUSHALL")
		}
		h.Unlock() // which a node may not know any more
	}
	for _, c := range both {
		c.Close()
	}
	return o
}
