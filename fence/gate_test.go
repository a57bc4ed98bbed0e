package fence_test

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/fence"
)

func TestGateRefusesLowerTokens(t *testing.T) {
	var g fence.Gate
	require.Zero(t, g.Highest())
	require.NoError(t, g.Admit(0), "none is lower")
	require.NoError(t, g.Admit(41))
	require.NoError(t, g.Admit(41), "all accesses of one hold carry the same token")
	require.NoError(t, g.Admit(42))

	err := g.Admit(41)
	require.ErrorIs(t, err, fence.ErrStale)
	require.EqualError(t, err, "fence: stale token 41: the highest seen is 42")
	var stale *fence.StaleError
	require.ErrorAs(t, err, &stale)
	require.Equal(t, fence.StaleError{Token: 41, Highest: 42}, *stale)
	require.Equal(t, uint64(42), g.Highest())

	require.NoError(t, g.Admit(math.MaxUint64))
	require.ErrorIs(t, g.Admit(math.MaxUint64-1), fence.ErrStale)
}

func TestGateRunsWhatItAdmits(t *testing.T) {
	var g fence.Gate
	failure := errors.New("failure")
	ran := 0
	access := func() error { ran++; return failure }
	require.ErrorIs(t, g.Do(2, access), failure)
	require.ErrorIs(t, g.Do(1, access), fence.ErrStale)
	require.Equal(t, 1, ran)
	require.Equal(t, uint64(2), g.Highest(), "an access that failed has been seen")

	require.Panics(t, func() { g.Do(3, func() error { panic("access") }) })
	require.NoError(t, g.Admit(3), "a panic leaves the gate usable")
}

// The order of the accesses is that of their tokens. The race detector sees to
// it that they run one at a time.
func TestGateConcurrently(t *testing.T) {
	var g fence.Gate
	var accepted []uint64
	var running sync.WaitGroup
	refused := make([]int, 8)
	for i := range refused {
		running.Go(func() {
			for range 2000 {
				floor := g.Highest()
				token := floor - min(floor, 5) + rand.Uint64N(8)
				var err error
				if rand.N(2) == 0 {
					err = g.Admit(token)
				} else {
					err = g.Do(token, func() error { accepted = append(accepted, token); return nil })
				}
				switch {
				case err == nil:
					assert.GreaterOrEqual(t, token, floor, "admitted after a higher one")
				case assert.ErrorIs(t, err, fence.ErrStale):
					refused[i]++
				}
				assert.GreaterOrEqual(t, g.Highest(), floor, "the gate forgets")
			}
		})
	}
	running.Wait()
	for i := range accepted[1:] {
		require.LessOrEqual(t, accepted[i], accepted[i+1], "access %d", i)
	}
	for _, n := range refused {
		require.NotZero(t, n)
	}
}

// Any sequence of tokens: the gate admits exactly those that are not lower than
// all before, so admitted tokens never decrease.
func FuzzGate(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x2a\x00\x00\x00\x00\x00\x00\x00\x29\x00\x00\x00\x00\x00\x00\x00\x2a"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\x80\x00\x00\x00\x00\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var g fence.Gate
		highest := uint64(0)
		for ; len(data) >= 8; data = data[8:] {
			token := binary.BigEndian.Uint64(data)
			err := g.Admit(token)
			if admitted := token >= highest; admitted != (err == nil) {
				t.Fatalf("Admit(%d) after %d: %v", token, highest, err)
			}
			highest = max(highest, token)
			if got := g.Highest(); got != highest {
				t.Fatalf("Highest() = %d, want %d", got, highest)
			}
		}
	})
}
