package core

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"sync/atomic"
)

// Owner says who holds a lock. It is comparable; the zero Owner is invalid. A
// private owner is known to one process only: it re-enters through the client that
// made it, and the store knows it by another, random id.
type Owner struct {
	ID      [16]byte
	Private bool
}

// NewOwner returns an explicit owner of 128 random bits.
func NewOwner() Owner {
	var o Owner
	rand.Read(o.ID[:]) // never fails: crypto/rand ends the program instead
	return o
}

var privateOwners atomic.Uint64

// NewPrivateOwner returns an owner that differs from all others of this process. It
// is never told to the store, so it need not be random.
func NewPrivateOwner() Owner {
	o := Owner{Private: true}
	binary.LittleEndian.PutUint64(o.ID[:], privateOwners.Add(1))
	return o
}

// Valid reports whether o is not the zero Owner.
func (o Owner) Valid() bool { return o.ID != [16]byte{} }

// String returns the id in hexadecimal. For an explicit owner that is a capability.
func (o Owner) String() string { return hex.EncodeToString(o.ID[:]) }
