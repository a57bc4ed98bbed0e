package main

import (
	"math"
	"slices"
)

// figures are one figure of all repetitions, in the order of their making.
type figures []float64

func (f figures) median() float64 {
	if len(f) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(f))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

func (f figures) least() float64 {
	if len(f) == 0 {
		return math.NaN()
	}
	return slices.Min(f)
}

func (f figures) greatest() float64 {
	if len(f) == 0 {
		return math.NaN()
	}
	return slices.Max(f)
}

// fairness is how many times as often as the one who had the lock least had it
// the one who had it most: 1 is fair, infinite if somebody never had it.
func fairness(turns []int) float64 {
	if len(turns) == 0 {
		return math.NaN()
	}
	most, least := slices.Max(turns), slices.Min(turns)
	if least == 0 {
		return math.Inf(1)
	}
	return float64(most) / float64(least)
}
