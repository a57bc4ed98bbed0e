package dlock

// Stats says what a client holds and does at the moment. Its figures are gauges;
// they are read one after another, not at one instant.
type Stats struct {
	Names    int // names that the client holds, waits for or asks about
	Holds    int // holds at the store
	Waiters  int // calls that wait for a lock, or for the store's first answer
	Calls    int // lock calls, unlocks and calls of the store under way
	Places   int // requests that have a place in a queue at the store
	Releases int // releases in the background that the store has not confirmed
}

// Stats returns what the client holds and does. It makes no call of the store and
// does not block.
func (c *Client) Stats() Stats { return Stats(c.core.Stats()) }
