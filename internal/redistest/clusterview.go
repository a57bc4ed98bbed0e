package redistest

import (
	"strconv"
	"strings"
)

// clusterLine is what one node says about a node, in CLUSTER NODES.
type clusterLine struct {
	id     string
	myself bool
	master string // of a replica: the id of its master
	epoch  int
	slots  [][2]int // served, from and to
}

func (l clusterLine) serves(slot int) bool {
	for _, r := range l.slots {
		if r[0] <= slot && slot <= r[1] {
			return true
		}
	}
	return false
}

// view is what a node knows of the cluster, nil if it does not answer.
func (c *Cluster) view(s *Server) []clusterLine {
	if !s.Running() {
		return nil
	}
	reply, err := s.Do("CLUSTER", "NODES").ToString()
	if err != nil {
		return nil
	}
	var view []clusterLine
	for line := range strings.Lines(strings.TrimPrefix(reply, "txt:")) { // RESP3 has it as a verbatim string
		// id addr flags master ping-sent pong-received epoch link slots...
		f := strings.Fields(line)
		if len(f) < 8 || strings.Contains(f[2], "handshake") {
			continue
		}
		l := clusterLine{id: f[0], myself: strings.Contains(f[2], "myself")}
		if f[3] != "-" {
			l.master = f[3]
		}
		l.epoch, _ = strconv.Atoi(f[6])
		for _, r := range f[8:] {
			if strings.HasPrefix(r, "[") { // a slot on the move
				continue
			}
			from, to, ranged := strings.Cut(r, "-")
			if !ranged {
				to = from
			}
			a, _ := strconv.Atoi(from)
			b, _ := strconv.Atoi(to)
			l.slots = append(l.slots, [2]int{a, b})
		}
		view = append(view, l)
	}
	return view
}

// claimant is the running node that says it serves the slot; of several, as
// after a failover that the old master has not heard of, the one with the latest
// configuration. It is nil if there is none.
func (c *Cluster) claimant(slot int) *Server {
	var owner *Server
	epoch := -1
	for _, s := range c.Nodes {
		for _, l := range c.view(s) {
			if l.myself && l.master == "" && l.serves(slot) && l.epoch > epoch {
				owner, epoch = s, l.epoch
			}
		}
	}
	return owner
}

// agreed reports whether all running nodes know that owner serves the slot.
func (c *Cluster) agreed(slot int, owner *Server) bool {
	for _, s := range c.Nodes {
		for _, l := range c.view(s) {
			if l.serves(slot) && l.id != c.ids[owner] {
				return false
			}
		}
	}
	return true
}

// sameEpoch reports whether all running nodes know the same epoch.
func (c *Cluster) sameEpoch() bool {
	var known string
	for _, s := range c.Nodes {
		if !s.Running() {
			continue
		}
		reply, err := s.Do("CLUSTER", "INFO").ToString()
		_, rest, found := strings.Cut(reply, "cluster_current_epoch:")
		epoch, _, _ := strings.Cut(rest, "\r\n")
		if err != nil || !found || known != "" && known != epoch {
			return false
		}
		known = epoch
	}
	return true
}

// Master returns the node that serves the slot now, by its own account. Nodes
// that are killed or paused are not asked. It blocks until there is one, so
// after the Kill of a master until its replica has taken over, and fails the
// test after a minute.
func (c *Cluster) Master(slot int) *Server {
	c.t.Helper()
	var owner *Server
	c.Nodes[0].await("a running node serves slot "+strconv.Itoa(slot), func() bool {
		owner = c.claimant(slot)
		return owner != nil
	})
	return owner
}

// replica returns a running replica of the master of the slot, by its own
// account, for the master may be dead.
func (c *Cluster) replica(slot int) *Server {
	for _, s := range c.Nodes {
		view := c.view(s)
		for _, me := range view {
			if !me.myself || me.master == "" {
				continue
			}
			for _, l := range view {
				if l.id == me.master && l.serves(slot) {
					return s
				}
			}
		}
	}
	return nil
}
