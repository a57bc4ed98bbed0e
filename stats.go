package dlock

import "time"

// Stats says what a client holds and does at the moment, and what it has done. The
// figures are read one after another, not at one instant.
type Stats struct {
	Names    int // names that the client holds, waits for or asks about
	Holds    int // holds at the store
	Waiters  int // calls that wait for a lock, or for the store's first answer
	Calls    int // lock calls, unlocks and calls of the store under way
	Places   int // requests in the background: queued, or without a known answer
	Releases int // releases in the background that the store has not confirmed

	Counters
}

// Counters count what a client has done since New. They never go down.
type Counters struct {
	Waits          int64         // lock calls that had to wait for another holder and have ended, granted or not
	WaitTime       time.Duration // of these calls together
	LocalHandovers int64         // locks that passed on in this process, without a call of the store
	PushedGrants   int64         // grants that the store pushed to a waiter

	// Holds at the store that were lost, by cause.
	LostDeadline int64 // the deadline passed without a confirmed renewal
	LostFixed    int64 // the lease ran out and is not renewed
	LostMaxHold  int64 // MaxHold was reached
	LostGone     int64 // the store said that the hold is gone

	Renewals    int64 // holds that were renewed; one call of the store renews many
	StoreCalls  int64 // calls of the store that have ended
	StoreErrors int64 // calls without a usable answer: no reply, failed or refused
}

// Stats returns what the client holds and does, and its counters. It makes no call of
// the store and does not block.
func (c *Client) Stats() Stats {
	s := c.core.Stats()
	return Stats{s.Names, s.Holds, s.Waiters, s.Calls, s.Places, s.Releases, Counters(s.Counters)}
}
