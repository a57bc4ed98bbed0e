//go:build !race

package dlock_test

const (
	manyContexts  = 200_000
	manyNames     = 1_000_000
	closings      = 2_000
	interleavings = 20_000
)
