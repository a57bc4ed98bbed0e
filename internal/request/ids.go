package request

import (
	"crypto/rand"
	"encoding/hex"
)

// NewIDs returns two new ids, each of 128 random bits in hexadecimal. They come
// straight from crypto/rand: random bytes kept for later would be the same in two
// copies of a virtual machine, and so would be the ids.
func NewIDs() (a, b string) {
	var bits [32]byte
	rand.Read(bits[:]) // never fails: crypto/rand ends the program instead
	var text [64]byte
	hex.Encode(text[:], bits[:])
	both := string(text[:])
	return both[:32], both[32:]
}
