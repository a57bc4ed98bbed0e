package explore

import (
	"os"
	"strings"
	"testing"
)

// enough is more states than any of the worlds has.
const enough = 100_000_000

// TestNothingIsFound: two or three clients, three nodes, every order of messages. The larger
// worlds take minutes and run with DLOCK_PROVE=1.
func TestNothingIsFound(t *testing.T) {
	for name, w := range map[string]World{
		"counters apart":             {Clients: 2, Attempts: 1, Lease: 3, Ahead: 2},
		"a message lost":             {Clients: 2, Attempts: 1, Lease: 2, Losses: 1},
		"a node restarts":            {Clients: 2, Attempts: 1, Lease: 2, Restarts: 1, Ahead: 1},
		"a restart, a fresh client":  {Clients: 2, Attempts: 1, Lease: 2, Restarts: 1, Fresh: true},
		"renewal":                    {Clients: 2, Attempts: 1, Lease: 2, Renewals: 1},
		"proposals":                  {Clients: 2, Attempts: 1, Lease: 2, Ahead: 1, Proposals: 2},
		"proposals, several tokens":  {Clients: 2, Attempts: 1, Lease: 2, Ahead: 1, Proposals: 3, Span: 2},
		"proposals in steps":         {Clients: 2, Attempts: 1, Lease: 2, Ahead: 1, Proposals: 2, Steps: true},
		"proposals, a message lost":  {Clients: 2, Attempts: 1, Lease: 2, Losses: 1, Proposals: 2},
		"proposals, a node restarts": {Clients: 2, Attempts: 1, Lease: 2, Restarts: 1, Proposals: 2, Fresh: true},
		"proposals, renewal":         {Clients: 2, Attempts: 1, Lease: 2, Renewals: 1, Proposals: 2},
		"a second attempt":           {Clients: 1, Attempts: 2, Lease: 3, Ahead: 2},
		"an attempt given up":        {Clients: 2, Attempts: 2, Left: true, Lease: 2, Ahead: 1, Proposals: 1},
		"three clients":              {Clients: 3, Attempts: 1, Lease: 2, Ahead: 1},
	} {
		t.Run(name, func(t *testing.T) {
			slow(t, w.Renewals == 0)
			w.wantNothing(t)
		})
	}
	for name, w := range map[string]World{
		"longer leases":               {Clients: 2, Attempts: 1, Lease: 3, Losses: 1, Restarts: 1, Ahead: 2, Proposals: 2},
		"two restarts":                {Clients: 2, Attempts: 1, Lease: 2, Restarts: 2, Fresh: true, Proposals: 2},
		"renewal and a restart":       {Clients: 2, Attempts: 1, Lease: 3, Renewals: 1, Restarts: 1, Proposals: 2},
		"steps and a restart":         {Clients: 2, Attempts: 1, Lease: 2, Losses: 1, Restarts: 1, Proposals: 2, Steps: true, Span: 2},
		"two attempts":                {Clients: 2, Attempts: 2, Lease: 2, Ahead: 1, Proposals: 1},
		"three clients, one given up": {Clients: 3, Attempts: 2, Left: true, Lease: 2},
		"three clients that propose":  {Clients: 3, Attempts: 1, Lease: 2, Proposals: 2},
	} {
		t.Run(name, func(t *testing.T) {
			if os.Getenv("DLOCK_PROVE") == "" {
				t.Skip("it takes minutes; set DLOCK_PROVE=1")
			}
			w.wantNothing(t)
		})
	}
}

// slow skips a large world under the race detector, which has nothing to find in one
// goroutine and takes ten times as long.
func slow(t *testing.T, large bool) {
	t.Helper()
	if underRace && large {
		t.Skip("it takes too long under the race detector")
	}
}

func (w World) wantNothing(t *testing.T) {
	t.Helper()
	r := w.Explore(enough)
	t.Log(r)
	if r.Broken != "" || r.Cut {
		t.Errorf("%+v", w)
	}
}

// TestEachGuardIsNeeded: without it, what it is there for is found.
func TestEachGuardIsNeeded(t *testing.T) {
	const two, order = "two clients hold", "is reported after"
	for name, x := range map[string]struct {
		world World
		want  string
	}{
		"no margin":                          {World{Clients: 2, Attempts: 1, Lease: 2, Without: Guards{Margin: true}}, two},
		"a restart without exclusion":        {World{Clients: 2, Attempts: 1, Lease: 2, Restarts: 1, Without: Guards{Exclusion: true}}, two},
		"a token without commit":             {World{Clients: 2, Attempts: 1, Lease: 3, Ahead: 2, Without: Guards{Commit: true}}, order},
		"half of the nodes":                  {World{Clients: 2, Attempts: 1, Lease: 3, Without: Guards{Majority: true}}, two},
		"a counter that restarts with zeros": {World{Clients: 2, Attempts: 1, Lease: 2, Restarts: 1, Ahead: 2, Fresh: true, Without: Guards{Seed: true}}, order},
		"a proposal that is always taken":    {World{Clients: 2, Attempts: 1, Lease: 2, Proposals: 2, Without: Guards{Above: true}}, order},
		"a proposal for a lost counter":      {World{Clients: 2, Attempts: 1, Lease: 2, Restarts: 1, Proposals: 2, Fresh: true, Without: Guards{Counter: true}}, order},
		"a proposal without commit":          {World{Clients: 2, Attempts: 1, Lease: 2, Ahead: 1, Proposals: 1, Without: Guards{Commit: true}}, order},
		"a span that is not reserved":        {World{Clients: 2, Attempts: 1, Lease: 2, Proposals: 2, Span: 2, Without: Guards{Reserve: true}}, order},
		"attempts that share an id":          {World{Clients: 2, Attempts: 2, Left: true, Lease: 2, Without: Guards{Tries: true}}, two},
		"a token of an attempt before":       {World{Clients: 1, Attempts: 2, Lease: 3, Ahead: 2, Without: Guards{Passed: true}}, order},
		"proposals without exclusion":        {World{Clients: 2, Attempts: 1, Lease: 2, Restarts: 1, Proposals: 1, Without: Guards{Exclusion: true}}, two},
	} {
		t.Run(name, func(t *testing.T) {
			slow(t, x.world.Without.Margin || x.world.Without.Seed || x.world.Without.Tries)
			r := x.world.Explore(enough)
			t.Log(r)
			if !strings.Contains(r.Broken, x.want) {
				t.Errorf("%+v: want %q", x.world, x.want)
			}
		})
	}
}
