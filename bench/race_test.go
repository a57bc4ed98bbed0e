//go:build race

package bench

const underRace = true
