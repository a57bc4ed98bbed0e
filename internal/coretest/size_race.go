//go:build race

package coretest

// Sizes of the tests that need large numbers. They are smaller with the race detector, which
// makes each step some ten times slower and keeps a shadow of the heap.
const (
	ManyContexts  = 30_000
	ManyHolds     = 20_000
	ManyNames     = 10_000
	Closings      = 400
	Interleavings = 2_000
)
