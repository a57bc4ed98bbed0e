package faultstore

import (
	"time"

	"github.com/dlock-go/dlock/store"
)

// Call is the record of one call.
type Call struct {
	Op       Op
	N        int           // its number among the calls of its Op, from 1
	Request  store.Request // of an Acquire
	Refs     []store.Ref   // of a Renew or, one, of a Release or RaiseToken
	Sent     time.Time
	Returned time.Time // zero: not yet
	Applied  int       // how often the store behind has done the request so far
	Result   Result    // the answer that the caller got
}

// ID returns the id of a call. Of a Renew it is the first one.
func (c Call) ID() string {
	if c.Op == Acquire || len(c.Refs) == 0 {
		return c.Request.ID
	}
	return c.Refs[0].ID
}

// Name returns the lock's name. Of a Renew it is the first one.
func (c Call) Name() string {
	if c.Op == Acquire || len(c.Refs) == 0 {
		return c.Request.Name
	}
	return c.Refs[0].Name
}

// Result is the answer to a call.
type Result struct {
	Grant store.Grant   // of an Acquire; of a RaiseToken only the token
	Err   error         // of a Renew the first that is not nil
	Errs  []error       // of a Renew, one for each hold
	Life  string        // of an Incarnation or a vote
	Age   time.Duration // of an Incarnation or a vote

	LifeErr error  // of a vote
	Clock   uint64 // of a vote
}

// Calls returns the calls of op so far, in the order in which they were sent.
func (s *Store) Calls(op Op) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Call
	for _, c := range s.calls {
		if op == Any || c.Op == op {
			list = append(list, *c)
		}
	}
	return list
}

// Count returns how many calls of op were sent so far.
func (s *Store) Count(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[op]
}

// Await blocks until the n-th call of op has arrived.
func (s *Store) Await(op Op, n int) { <-s.Arrived(op, n) }

// Arrived returns a channel that is closed when the n-th call of op arrives, before its faults and
// the store behind.
func (s *Store) Arrived(op Op, n int) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := arrival{op, n}
	if s.arrived[key] == nil {
		s.arrived[key] = make(chan struct{})
		if s.counts[op] >= n {
			close(s.arrived[key])
		}
	}
	return s.arrived[key]
}
