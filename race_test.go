//go:build race

package dlock_test

// The race detector makes each step some ten times slower and keeps a shadow of
// the heap, so what is about numbers runs smaller under it.
const (
	manyContexts  = 30_000
	manyNames     = 10_000
	closings      = 400
	interleavings = 2_000
)
