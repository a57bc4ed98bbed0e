package real

import (
	"fmt"
	"time"
)

// evidence is what a history is judged by.
type evidence struct {
	records []record // by Call

	Killed map[int]moment      // when workers were
	Log    map[string][]access // of the register, by name
	TTL    time.Duration

	Lossy   []span // the store may have lost holds
	Doubled bool   // calls arrived twice
	Forgets bool   // it has begun its tokens anew
	Longer  bool   // leases may have lasted longer than asked for
	Etcd    bool
	Quorum  bool   // of several stores, with no order among those who wait
	Ends    moment // from when on another copy of the data may be the store's; never if there is none
}

// judgement is what comes of it.
type judgement struct {
	undecided  []string // what the model could not say
	void       string   // why it proves nothing
	violations []string // any is a bug
	outside    []string // those of them that the records do not show
	operations int
	handovers  int // from one worker to another
	refused    int // accesses
	excused    int // overlaps of claims of processes that did not run
	ordered    int // calls of the store of which the model allows an order
}

func (j *judgement) violation(format string, args ...any) {
	j.violations = append(j.violations, fmt.Sprintf(format, args...))
}

func (e *evidence) judge() *judgement {
	j := &judgement{}
	grants := e.grants()
	e.checkOrder(j, grants)
	e.checkLeases(j, grants)
	e.checkLost(j, grants)
	e.checkSeen(j)
	claims := e.claims(j)
	e.checkClaims(j, claims)
	e.checkTold(j, grants, claims)
	e.checkRegister(j)
	e.checkRefused(j, claims)
	for _, r := range e.records {
		switch {
		case r.Op == opLock:
			j.operations++
		case (r.Op == opRead || r.Op == opWrite) && r.Outcome == refused:
			j.refused++
		case r.Op == opClose && r.Error != "":
			// The store was too slow for the bound of Close, which says so.
			j.void = fmt.Sprintf("worker %d: %s", r.Worker, r.Error)
		case r.Op == "unreadable":
			j.violation("worker %d wrote %s", r.Worker, r.Error)
		}
	}
	j.handovers = handovers(claims)
	if len(j.violations) == 0 && !e.Quorum { // in a history that has no order it may search for long
		e.checkModel(j)
	}
	return j
}

// judged reports whether exclusion was promised between two, the earlier of
// which was asked for at asked, up to the moment at which they clash.
func (e *evidence) judged(asked, clash moment) bool {
	for _, s := range e.Lossy {
		if asked <= s.To && clash >= s.From {
			return false
		}
	}
	return true
}

func handovers(claims []*believed) (n int) {
	last := map[string]int{}
	for _, c := range claims { // in the order of their beginning
		if worker, ok := last[c.name]; ok && worker != c.worker {
			n++
		}
		last[c.name] = c.worker
	}
	return n
}

// margin is the one that a hold keeps from the end of its lease.
func margin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }
