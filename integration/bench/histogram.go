package main

import (
	"math/bits"
	"time"
)

// fine is how many buckets there are for each doubling: a bucket is 3 % wide at most.
const fine = 32

// histogram counts times. Its size does not depend on how many there are, and
// those of goroutines and processes add up.
type histogram map[int]int

// bucket of a time, and the middle of a bucket.
func bucket(d time.Duration) int {
	n := uint64(max(d, 0))
	if n < 2*fine {
		return int(n)
	}
	shift := bits.Len64(n) - 6 // n>>shift is 32 to 63
	return shift*fine + int(n>>shift)
}

func middle(bucket int) time.Duration {
	if bucket < 2*fine {
		return time.Duration(bucket)
	}
	shift := bucket/fine - 1
	low := time.Duration(bucket-shift*fine) << shift
	return low + time.Duration(1)<<shift/2
}

func (h histogram) add(other histogram) {
	for b, n := range other {
		h[b] += n
	}
}

func (h histogram) count() (sum int) {
	for _, n := range h {
		sum += n
	}
	return sum
}

// quantile is the time that a part of all do not exceed, 0 if there are none.
func (h histogram) quantile(part float64) time.Duration {
	all := h.count()
	if all == 0 {
		return 0
	}
	// The least rank that covers the part, counted from one.
	rank := max(1, int(part*float64(all)+0.999999))
	last, seen := 0, 0
	for b := range h {
		last = max(last, b)
	}
	for b := 0; b <= last; b++ {
		if seen += h[b]; seen >= rank {
			return middle(b)
		}
	}
	return middle(last)
}

// recorder is a histogram that one goroutine fills quickly.
type recorder struct{ counts [60 * fine]uint32 }

func (r *recorder) record(d time.Duration) { r.counts[bucket(d)]++ }

func (r *recorder) histogram() histogram {
	h := histogram{}
	for b, n := range r.counts {
		if n > 0 {
			h[b] = int(n)
		}
	}
	return h
}
