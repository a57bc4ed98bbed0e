package watchdog

import (
	"math"
	"math/bits"
	"time"
)

// This file has the arithmetic that chooses the moments of renewal. Moments and waits
// are in nanoseconds; no function here reads a clock.

const never = int64(math.MaxInt64)

// classOf returns the class of a validity; within a class, validities differ by less
// than a factor of two. Leases of different classes share no batch and no bound on
// calls, so that calls for long leases, which may hang for long, do not delay the
// renewal of short ones.
func classOf(validity int64) int { return bits.Len64(uint64(validity)) }

const classes = 64

// firstWait returns how long after Keep the first renewal is due: a third of the
// remaining time, or when two thirds of the validity remain if the lease begins with
// more than that. A renewal at once, if less than two thirds remain, was refused:
// stores grant short leases to waiters and share leases between holds, and most of
// those holds end before a third of the remaining time has passed.
func firstWait(remaining, validity int64) int64 {
	if remaining <= validity {
		return max(0, remaining/3)
	}
	return remaining - (validity - validity/3)
}

// retryWait returns how long after an unknown outcome the next attempt is due. A quarter
// of the remaining time makes attempts more frequent as the deadline comes closer; the
// minimum protects a store that fails at once.
func retryWait(remaining, validity int64) int64 {
	return max(remaining/4, validity/64, int64(time.Millisecond))
}

// quantize moves due down to the grid on which leases become due together. The step of
// the grid is between a 32nd and a 16th of the wait, and more than half a tick. Down, because a renewal may be
// early; and a wait is never rounded to nothing. Steps are powers of two with one
// origin, so the points of a coarse grid are points of the finer ones.
func quantize(now, due int64) int64 {
	wait := due - now
	if wait < shortestEntry {
		return due // leases of one batch have the same due moment anyway
	}
	step := int64(1) << (bits.Len64(uint64(max(wait/16, int64(tick)))) - 1)
	return due &^ (step - 1)
}
