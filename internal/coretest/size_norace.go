//go:build !race

package coretest

// Sizes of the tests that need large numbers.
const (
	ManyContexts  = 200_000
	ManyHolds     = 100_000
	ManyNames     = 1_000_000
	Closings      = 2_000
	Interleavings = 20_000
)
