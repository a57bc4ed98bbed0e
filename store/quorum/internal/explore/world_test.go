package explore

// World is what is explored.
type World struct {
	Clients  int
	Attempts int  // of each client, each with an id of its own
	Left     bool // the first client has given up an attempt, which node 0 has granted, and each client has one more; of two
	Lease    int  // in ticks of the clock
	Losses   int  // messages, or their replies, that may be lost
	Restarts int  // of nodes, which lose what they know

	Renewals int  // of each client
	Fresh    bool // the last client knows nothing of the nodes at first
	Ahead    int  // how far the token counter of node 0 is ahead at first

	// Proposals: each attempt proposes a token from 1 to this, whichever the client may have seen, or
	// none. What it proposes is one of the things that may happen.
	Proposals int
	Steps     bool // a vote is three calls of the node, see store.Voter
	Span      int  // how many tokens a grant reserves; 0 is 1

	Without Guards // that are taken away
}

// Guards are what the protocol relies on. In a World, true takes one away.
type Guards struct {
	Margin    bool // a claim ends a margin before the lease
	Exclusion bool // a node that restarted has no vote for a lease
	Commit    bool // a majority has the token before it is reported
	Majority  bool // more than half of the nodes, not half of them
	Seed      bool // the counter of a node that restarted goes on, by its clock
	Above     bool // a node gives a proposed token only if its counter is below
	Counter   bool // a node that has lost its counter gives a token of its clock
	Tries     bool // an attempt has another id at the nodes than the one before, which was not granted
	Passed    bool // a token that a node gives beside a hold of another attempt is passed over
	Reserve   bool // a token that was given moves the counter to the end of its span
}

func (w World) need() int {
	if w.Without.Majority {
		return nodes / 2
	}
	return nodes/2 + 1
}

// at is the id of an attempt at the nodes.
func (w World) at(k *client, id uint8) uint8 {
	if w.Without.Tries && !k.won {
		return 0
	}
	return id
}

func (w World) span() uint8 { return uint8(max(w.Span, 1)) }

// validity is for how long a claim lasts. Its round began age ago. 0: the claim has
// ended.
func (w World) validity(age uint8) uint8 {
	end := uint8(w.Lease - margin)
	if w.Without.Margin {
		end = uint8(w.Lease)
	}
	return end - min(age, end)
}
