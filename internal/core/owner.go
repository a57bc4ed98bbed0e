package core

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"sync"
	"sync/atomic"
)

// OwnerID are the random bits of an explicit owner. Who knows them can re-enter.
type OwnerID [16]byte

// Owner says who holds a lock. It is comparable; the zero Owner is invalid. A
// private owner is known to one process only: it re-enters through the client that
// made it, and the store knows it by another, random id.
type Owner struct {
	// sealed is the OwnerID, encrypted with a key of this process, or the number of a
	// private owner. Package fmt prints the fields of values that it finds inside others.
	sealed  [aes.BlockSize]byte
	private bool
}

// seal encrypts the ids of explicit owners.
var seal = sync.OnceValue(func() cipher.Block {
	var key [16]byte
	rand.Read(key[:]) // never fails: crypto/rand ends the program instead
	block, err := aes.NewCipher(key[:])
	if err != nil { // only for a key of another length
		panic(err)
	}
	return block
})

// NewOwner returns an explicit owner of 128 random bits.
func NewOwner() Owner {
	var id OwnerID
	rand.Read(id[:])
	return ExplicitOwner(id)
}

// ExplicitOwner returns the owner with that id, which is not zero.
func ExplicitOwner(id OwnerID) (o Owner) {
	seal().Encrypt(o.sealed[:], id[:])
	return o
}

var privateOwners atomic.Uint64

// NewPrivateOwner returns an owner that differs from all others of this process. It
// is never told to the store, so it need not be random.
func NewPrivateOwner() Owner {
	o := Owner{private: true}
	binary.LittleEndian.PutUint64(o.sealed[:], privateOwners.Add(1))
	return o
}

// Private reports whether o is a private owner.
func (o Owner) Private() bool { return o.private }

// Valid reports whether o is not the zero Owner.
func (o Owner) Valid() bool { return o != Owner{} }

// String returns the id in hexadecimal. For an explicit owner that is a capability. That
// of a private owner is its number.
func (o Owner) String() string {
	id := o.sealed
	if o.Valid() && !o.private {
		seal().Decrypt(id[:], o.sealed[:])
	}
	return hex.EncodeToString(id[:])
}
