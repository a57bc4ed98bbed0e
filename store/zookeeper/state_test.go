package zookeeper

import (
	"context"
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

// TestSweepThatFails: a sweep that could not look at the names says nothing of how
// many there are.
func TestSweepThatFails(t *testing.T) {
	s := &Store{sweep: sweeping{kept: 100, running: true}}
	s.ctx, s.cancel = context.WithCancel(t.Context())
	s.cancel()
	s.sweepAll()
	assert.Equal(t, sweeping{kept: 100}, s.sweep)
}
