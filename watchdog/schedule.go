package watchdog

import (
	"math"
	"math/bits"
	"time"
)

// How the moments of renewal are chosen. All of it is arithmetic on
// nanoseconds; nothing here knows a clock.

const (
	tick      = 5 * time.Millisecond
	wheelSize = 2048
	// span is what the wheel holds without an overflow wheel, whose reuse of
	// buckets is where the library can deadlock on itself.
	span = tick * wheelSize
	// longestHop is the longest delay the wheel is asked for. A slot due later
	// is handed to it again when the hop has passed. A quarter of the span
	// leaves half of it for a dispatcher that lags behind.
	longestHop = int64(span / 4)
	// earliness is how much too early a healthy wheel may fire: it truncates
	// to its tick, and to milliseconds twice.
	earliness = int64(2 * tick)
	// shortestHop: waits below it go to the standard timer, because the wheel
	// would answer them at once and a failing renewal would spin.
	shortestHop = int64(4 * tick)

	minRetry = int64(time.Millisecond)
	minGrace = int64(10 * time.Millisecond)
	maxGrace = int64(time.Second)
)

// classOf groups validities within a factor of two. Leases of different
// classes share neither a slot nor a batch nor a bound on calls under way, so
// that long leases, whose calls may hang for long, never hold up short ones.
func classOf(validity int64) uint8 { return uint8(bits.Len64(uint64(validity))) }

const classes = 64

// firstWait is how long after Keep the first renewal is due: a third of what
// remains, or when two thirds of the validity remain if the lease begins with
// more than that. "At once whenever less than two thirds remain" was refused:
// stores that share a lease between holds grant such holds all the time, and
// most of them end within milliseconds. The caller has Urgent for the others.
func firstWait(remaining, validity int64) int64 {
	if remaining <= validity {
		return max(0, remaining/3)
	}
	return remaining - (validity - validity/3)
}

// retryWait is how long after an unknown outcome the next attempt is due: a
// quarter of what remains, so the attempts come closer together as the deadline
// does, down to a floor that keeps a store in trouble from being stormed.
func retryWait(remaining, validity int64) int64 {
	return max(remaining/4, validity/64, minRetry)
}

// quantize moves due down to the grid on which leases share slots. The grid is
// between a 32nd and a 16th of the wait. Down, never up: a renewal may be early,
// and a wait is never rounded to nothing. Grids are powers of two of the same
// origin, so the points of a coarse one are points of the finer ones.
func quantize(now, due int64) int64 {
	wait := due - now
	if wait < shortestHop {
		// Leases of one batch have the same due moment anyway.
		return due
	}
	q := int64(1) << (bits.Len64(uint64(max(wait/16, int64(tick)))) - 1)
	return due &^ (q - 1)
}

// graceOf is how late the wheel may fire a slot before a standard timer does it
// in its place.
func graceOf(wait int64) int64 { return min(max(wait/4, minGrace), maxGrace) }

func addSaturated(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}
