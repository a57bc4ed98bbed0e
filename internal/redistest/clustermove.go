package redistest

import "strconv"

// BeginMove declares that the slot is on its way to another master: from now on
// its old master answers ASK for keys that it does not have, and TRYAGAIN for
// commands on several keys of which it has only some. It moves no key.
func (c *Cluster) BeginMove(slot int, to *Server) {
	c.t.Helper()
	from := c.Master(slot)
	n := strconv.Itoa(slot)
	to.MustDo("CLUSTER", "SETSLOT", n, "IMPORTING", c.ids[from])
	from.MustDo("CLUSTER", "SETSLOT", n, "MIGRATING", c.ids[to])
}

// MoveKeys moves up to n keys of the slot to the node with MIGRATE and returns
// how many it moved. Call BeginMove first.
func (c *Cluster) MoveKeys(slot int, to *Server, n int) int {
	c.t.Helper()
	from := c.Master(slot)
	keys, err := from.Do("CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), strconv.Itoa(n)).AsStrSlice()
	if err != nil {
		c.t.Fatalf("redistest: cannot list the keys of slot %d: %v", slot, err)
	}
	if len(keys) == 0 {
		return 0
	}
	command := []string{"MIGRATE", "127.0.0.1", to.port, "", "0", "5000", "KEYS"}
	if from.MustDo(append(command, keys...)...) == "NOKEY" { // all expired meanwhile
		return 0
	}
	return len(keys)
}

// EndMove makes the node the master of the slot and blocks until all running
// nodes know. The old master refuses while it still has keys of the slot, which
// fails the test: call MoveKeys until it returns 0.
//
// The node with the greatest epoch gets the slot. The new master takes an epoch above all that it
// knows of, so it has to know that of the old master. Else a late message of the old master takes
// the slot away from it, and no node serves the slot.
func (c *Cluster) EndMove(slot int, to *Server) {
	c.t.Helper()
	from := c.Master(slot)
	to.await("all nodes know the latest epoch", c.sameEpoch)
	order := []*Server{to, from}
	for _, s := range c.Nodes {
		if s != to && s != from && s.Running() && c.isMaster(s) {
			order = append(order, s)
		}
	}
	for _, s := range order {
		s.MustDo("CLUSTER", "SETSLOT", strconv.Itoa(slot), "NODE", c.ids[to])
	}
	to.await("all nodes know the new master of the slot", func() bool { return c.agreed(slot, to) })
}

func (c *Cluster) isMaster(s *Server) bool {
	for _, l := range c.view(s) {
		if l.myself {
			return l.master == ""
		}
	}
	return false
}

// Failover makes a replica of the slot's master the master, with CLUSTER
// FAILOVER TAKEOVER: it asks neither the old master, which may be killed or
// paused, nor the others, so writes that the replica has not got are lost. It
// blocks until all running nodes know.
func (c *Cluster) Failover(slot int) {
	c.t.Helper()
	var replica *Server
	c.Nodes[0].await("slot "+strconv.Itoa(slot)+" has a running replica", func() bool {
		replica = c.replica(slot)
		return replica != nil
	})
	replica.MustDo("CLUSTER", "FAILOVER", "TAKEOVER")
	replica.await("it is the master that all nodes know", func() bool {
		return c.claimant(slot) == replica && c.agreed(slot, replica)
	})
}
