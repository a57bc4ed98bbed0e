//go:build race

package memory_test

const underRace = true
