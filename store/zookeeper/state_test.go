package zookeeper

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNamesOfThePast: a handle that remembers as many names as it may forgets old ones
// for new ones.
func TestNamesOfThePast(t *testing.T) {
	s := &Store{names: map[string]*nameState{}}
	remember := func(name string) {
		state, err := s.lockName(t.Context(), name)
		require.NoError(t, err)
		state.known = &snapshot{room: "abcdefghijkl"}
		s.unlockName(name, state)
	}
	inUse, err := s.lockName(t.Context(), "in use")
	require.NoError(t, err)
	for i := range maxKnown + 100 {
		remember(fmt.Sprint(i))
	}
	assert.LessOrEqual(t, len(s.names), maxKnown+1)
	remember("new")
	require.Contains(t, s.names, "new")
	assert.NotNil(t, s.names["new"].known, "the record of a new name")
	assert.Same(t, inUse, s.names["in use"])
	s.unlockName("in use", inUse)
	assert.NotContains(t, s.names, "in use", "a name of which nothing is known")
}

// TestSweepCostsAConstant: sweeps read as many records as there are new names, on
// average, and few records are read at once.
func TestSweepCostsAConstant(t *testing.T) {
	for range 1000 {
		require.True(t, due(minCreated, 0))
		require.True(t, due(minCreated, minCreated))
	}
	const draws, records = 40000, 100 * minCreated
	sweeps := 0
	for range draws {
		if due(minCreated, records) {
			sweeps++
		}
	}
	assert.InDelta(t, draws/100, sweeps, 120, "six standard deviations")
}
