// Package sample is mutated by a test.
package sample

// Price is for n pieces, of which none costs less than least.
func Price(n, each, least int) int {
	if n > 9 && each > 1 {
		each--
	}
	return n * max(each, least)
}

// Never is not reached.
func Never() bool { return true }
