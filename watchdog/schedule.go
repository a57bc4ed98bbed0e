package watchdog

import (
	"math"
	"math/bits"
	"time"
)

// This file has the arithmetic that chooses the moments of renewal. Moments and waits
// are in nanoseconds; no function here reads a clock.

const (
	never = int64(math.MaxInt64)

	tick      = 5 * time.Millisecond
	wheelSize = 2048
	// span is how far ahead the wheel can hold an entry without an overflow wheel. The
	// library can deadlock when buckets of an overflow wheel are used again.
	span = tick * wheelSize
	// longestEntry is the longest wait that the wheel is given. A wheel takes its last firing for the
	// current time. So the sum of idleTime and longestEntry is less than span.
	longestEntry = int64(span / 5)
	// shortestEntry is the shortest wait that the wheel is given. It would answer shorter
	// ones at once, and a failing renewal would be repeated without a pause.
	shortestEntry = int64(4 * tick)
	// earliness is how much too early a good wheel may fire: it rounds down to its tick
	// once and to milliseconds twice.
	earliness = int64(2 * tick)
	// lateness is how much too late a good wheel may fire. A process that stood still for
	// longer has its wheel replaced, which does no harm.
	lateness = int64(time.Second)
)

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
// the grid is between a 32nd and a 16th of the wait. Down, because a renewal may be
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
