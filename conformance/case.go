package conformance

// testCase checks one sentence of the contract.
type testCase struct {
	name  string // topic/name once it runs
	says  string // the sentence, as package store has it
	needs need
	run   func(h *harness)
}

// need is what a case cannot do without.
type need uint

const (
	fair       need = 1 << iota // an order among waiters, promotion and events
	peer                        // another handle, or the same one again
	twoHandles                  // another handle
	common                      // owners and ids that mean the same to all handles
	breaker                     // store.Breaker
	lister                      // store.Lister
	raiser                      // store.TokenRaiser
	incarnator                  // store.Incarnator
	voter                       // store.Voter
	plant                       // Suite.Plant
	stall                       // Suite.Stall
	footprint                   // Suite.Footprint
	alone                       // no other case meanwhile: all names together matter, for a counter of theirs or for List
)

func (n need) has(other need) bool { return n&other == other }

var topics = []struct {
	name  string
	cases []testCase
}{
	{"acquire", acquireCases},
	{"reentry", reentryCases},
	{"upgrade", upgradeCases},
	{"shared", sharedCases},
	{"queue", queueCases},
	{"place", placeCases},
	{"promotion", promotionCases},
	{"release", releaseCases},
	{"bury", buryCases},
	{"renew", renewCases},
	{"expiry", expiryCases},
	{"tokens", tokenCases},
	{"wakeups", wakeupCases},
	{"siblings", siblingCases},
	{"inspect", inspectCases},
	{"names", nameCases},
	{"input", inputCases},
	{"duplicates", duplicateCases},
	{"concurrency", concurrencyCases},
	{"handles", handleCases},
	{"abilities", abilityCases},
	{"contract", contractCases},
	{"raising", raisingCases},
	{"voting", votingCases},
	{"stall", stallCases},
	{"footprint", footprintCases},
}

// allCases are the cases of all topics under their full names.
func allCases() (all []testCase) {
	for _, topic := range topics {
		for _, c := range topic.cases {
			c.name = topic.name + "/" + c.name
			all = append(all, c)
		}
	}
	return all
}
