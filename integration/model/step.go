package model

import "fmt"

// Op is a method of the store.
type Op string

// The methods that are written down.
const (
	Acquire Op = "acquire"
	Renew   Op = "renew"
	Release Op = "release"
)

// Outcome is what became of a call.
type Outcome string

// Unknown is also that of a call that has not returned.
const (
	Unknown  Outcome = "unknown"
	Held     Outcome = "held"
	Queued   Outcome = "queued"
	Busy     Outcome = "busy"
	Upgrade  Outcome = "upgrade"
	Done     Outcome = "done" // of Renew and Release
	Lost     Outcome = "lost"
	Refused  Outcome = "refused"
	Foreign  Outcome = "foreign"
	IsClosed Outcome = "closed"
)

// Call is a call of the store, as far as it concerns the model. Ids and owners
// are numbers, of each history its own.
type Call struct {
	Op                  Op
	ID, Owner           int
	Shared, Queue, Bury bool
	Outcome             Outcome
	Token               uint64
	Holds, Position     int
	Promise             uint64 // the one token that its id is ever granted anew; 0: not known
}

// Kind is what an operation of the model is.
type Kind uint8

// The kinds.
const (
	Answered   Kind = iota // a call, with the answer that its client got
	Unanswered             // a call that was applied, with whatever answer
	Told                   // an event: the hold of that id has that token
	HoldEnds               // ghost: what step N gave as a lease of a hold is over
	PlaceEnds              // ghost: what step N gave as a place is over
	BurialEnds             // ghost: what step N buried may be granted again
	Expires                // ghost: what step N gave, as a hold or as a place and the promotion from it, is over and noticed
	Noticed                // what has expired is removed, with those leases that ended before
	Forced                 // all holds are removed by force
	Wiped                  // all data is lost
	Over                   // the end of the history
)

// Step is the input of an operation, and its expected answer.
type Step struct {
	Kind  Kind
	N     int // the number that leases refer to; of a ghost, whose lease ends
	Call  *Call
	ID    int     // Told, ghosts
	Token uint64  // Told, end of what a promotion gave
	Ended []*Step // Noticed: ghosts
	Open  bool    // it may happen at any time, or not at all
	Maybe bool    // it may well not have happened
	Plain bool    // Told: of a hold that was not promoted, too
	Early bool    // Unanswered: takes a place before it looks whether its owner has a hold
}

func (s *Step) String() string {
	c := s.Call
	switch s.Kind {
	case Answered, Unanswered:
		known := ""
		if s.Kind == Unanswered {
			known = " (not told)"
		}
		return fmt.Sprintf("%s #%d owner %d shared=%t queue=%t bury=%t -> %s token %d holds %d position %d%s",
			c.Op, c.ID, c.Owner, c.Shared, c.Queue, c.Bury, c.Outcome, c.Token, c.Holds, c.Position, known)
	case Told:
		return fmt.Sprintf("event #%d token %d", s.ID, s.Token)
	case HoldEnds:
		return fmt.Sprintf("hold of #%d may end (lease %d)", s.ID, s.N)
	case PlaceEnds:
		return fmt.Sprintf("place of #%d may end (lease %d)", s.ID, s.N)
	case Expires:
		return fmt.Sprintf("#%d may expire (lease %d)", s.ID, s.N)
	case BurialEnds:
		return fmt.Sprintf("burial of #%d ends (%d)", s.ID, s.N)
	case Noticed:
		return fmt.Sprintf("what has expired is removed: %v", s.Ended)
	case Forced:
		return "forced release"
	case Wiped:
		return "all data is lost"
	}
	return "the end"
}
