package sim

import "slices"

// revoked: between the grants of two tokens, everything was taken from holders.
func (h *History) revoked(name string, a, b uint64) bool {
	return slices.ContainsFunc(h.Marks, func(m Mark) bool {
		return (m.Name == "" || m.Name == name) && (min(a, b) <= m.Token && m.Token < max(a, b) || h.inParts(m, name, min(a, b)))
	})
}

// inParts: the grant of that token was on its way when the holders were robbed. One
// store makes it before or after that. A quorum makes it node by node, so that
// all its parts may be taken when its token has been agreed on, and it is reported.
func (h *History) inParts(m Mark, name string, token uint64) bool {
	return h.Plan.Nodes > 0 && slices.ContainsFunc(h.Calls, func(c *Call) bool {
		return c.Op == Acquire && c.Name == name && slices.ContainsFunc(c.Arrivals, func(a Arrival) bool {
			return a.Outcome == Held && a.Token == token && a.From < m.To && m.From < a.To
		})
	})
}
