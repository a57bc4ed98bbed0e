// Package explore walks through everything that can happen to the protocol of the
// quorum store in a small world: three nodes, two or three clients, messages that
// are late, lost or out of order, leases that end, clocks that differ by the margin
// and a node that restarts empty. It finds every state that can be reached, and
// in each looks whether two clients may believe that they hold the lock, and
// whether a token was reported that is no greater than one reported before.
//
// Each guard of the protocol can be taken away, and then what it is there for is
// found, with the shortest way to it. That shows that the world is not too small.
// Time has no end in it, and a client that gave up or released has another go.
//
// It is a model of the protocol, not the store itself: the store's own tests and the
// simulation run that. One exclusive lock, and no queues: who waits asks again.
package explore

// World is what is explored.
type World struct {
	Clients  int
	Attempts int // of each client, each with an id of its own
	Lease    int // in ticks of the clock
	Losses   int // messages, or their replies, that may be lost
	Restarts int // of nodes, which lose what they know

	Renewals int  // of each client
	Fresh    bool // the last client knows nothing of the nodes at first
	Ahead    int  // how far the token counter of node 0 is ahead at first

	Without Guards // that are taken away
}

// Guards are what the protocol relies on. In a World, true takes one away.
type Guards struct {
	Margin    bool // a claim ends a margin before the lease
	Exclusion bool // a node that restarted has no vote for a lease
	Commit    bool // a token is written back to a majority before it is reported
	Majority  bool // more than half of the nodes, not half of them
	Seed      bool // the counter of a node that restarted goes on, by its clock
}
