package sim

// Kind is a kind of fault.
type Kind string

// Faults of single calls: a share of a client's calls meets them.
const (
	DropRequest Kind = "drop request" // lost, an error at once
	DropReply   Kind = "drop reply"   // applied, an error at once
	Mute        Kind = "mute"         // lost, silence
	MuteReply   Kind = "mute reply"   // applied, silence
	Duplicate   Kind = "duplicate"    // arrives twice
	LateTwin    Kind = "late twin"    // arrives again, much later
	SlowRequest Kind = "slow request" // arrives later, within the caller's patience
	SlowReply   Kind = "slow reply"   // answered later, within the caller's patience
	LateRequest Kind = "late request" // arrives when the caller has given up
	LateReply   Kind = "late reply"   // applied at once, answered too late
	Refusal     Kind = "refusal"      // certainly not applied, store.ErrRefused
	Failure     Kind = "failure"      // not applied, an error that does not say so
	PauseBefore Kind = "pause before" // the calling goroutine stops before it sends
	PauseAfter  Kind = "pause after"  // the calling goroutine stops with the reply in hand
	Severed     Kind = "severed"      // a renewal is answered later, and then the link is dead for about a lease or two
)

// Faults of events.
const (
	LostEvent    Kind = "lost event"
	DoubledEvent Kind = "doubled event"
	LateEvent    Kind = "late event"
	ForgedEvent  Kind = "forged event" // Event{}, or one of an id that nobody has
)

// Faults that last for a while, or for the whole history.
const (
	Outage    Kind = "outage"     // of one client's link
	SlowStore Kind = "slow store" // slower than a lease lasts, for everybody
	Restart   Kind = "restart"    // of the store, without loss; then everybody is told Event{}
	DataLoss  Kind = "data loss"  // a restart that loses all but the counter of tokens
	Drift     Kind = "drift"      // clocks whose rates differ by less than the margin
	WildClock Kind = "wild clock" // clocks whose rates differ by more
)

// Kinds are all kinds, in the order of the report.
var Kinds = []Kind{
	DropRequest, DropReply, Mute, MuteReply, Duplicate, LateTwin, SlowRequest, SlowReply, LateRequest, LateReply,
	Refusal, Failure, PauseBefore, PauseAfter, Severed,
	LostEvent, DoubledEvent, LateEvent, ForgedEvent,
	Outage, SlowStore, Restart, DataLoss, Drift, WildClock,
}

// ofCalls: a share of the calls meets it.
func (k Kind) ofCalls() bool {
	switch k {
	case DropRequest, DropReply, Mute, MuteReply, Duplicate, LateTwin, SlowRequest, SlowReply, LateRequest, LateReply,
		Refusal, Failure, PauseBefore, PauseAfter, Severed, ForgedEvent:
		return true
	}
	return false
}

// ofEvents: a share of the events meets it.
func (k Kind) ofEvents() bool { return k == LostEvent || k == DoubledEvent || k == LateEvent }
