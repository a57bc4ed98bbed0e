package fence

import "sync"

// Gate admits accesses to a resource in this process by their tokens. The zero
// Gate has seen no token and admits any. It is safe for concurrent use, and must
// not be copied after its first use.
//
// A Gate forgets when its process ends. For a resource that lives longer, keep
// [Gate.Highest] with the data, and Admit it at the start.
type Gate struct {
	mu      sync.Mutex
	highest uint64
}

// Do runs access if the token is not lower than the highest seen, which it then
// is, and returns what access returns, whose error does not lower it again.
// Otherwise it returns a *StaleError and does not run access. Equal tokens are
// admitted: all accesses of one hold carry the same.
//
// Accesses run one at a time, so that none with a higher token comes between the
// check and the access. Others wait meanwhile; access must not use the same Gate.
func (g *Gate) Do(token uint64, access func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if token < g.highest {
		return &StaleError{Token: token, Highest: g.highest}
	}
	g.highest = token
	return access()
}

// Admit is Do without the access. It is for a resource whose accesses are one
// step with the call of Admit already, as under a mutex of its own: between a
// bare Admit and the access that follows, somebody with a higher token may have
// been admitted and have read.
func (g *Gate) Admit(token uint64) error {
	return g.Do(token, func() error { return nil })
}

// Highest returns the highest token seen, 0 before the first.
func (g *Gate) Highest() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.highest
}
