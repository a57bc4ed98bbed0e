package real

import (
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// record is one thing that happened, as the process saw it that did it.
type record struct {
	Worker int    `json:"worker"` // 0 is the driver
	Op     string `json:"op"`
	Call   moment `json:"call"`
	Return moment `json:"return,omitempty"` // events and ends have Call alone

	Name    string `json:"name,omitempty"`
	Shared  bool   `json:"shared,omitempty"`
	Token   uint64 `json:"token,omitempty"` // of a queued answer: the last one issued
	Outcome string `json:"outcome,omitempty"`
	Error   string `json:"error,omitempty"`

	// Of calls of the store.
	ID      string        `json:"id,omitempty"`
	Owner   string        `json:"owner,omitempty"`
	TTL     time.Duration `json:"ttl,omitempty"` // of a grant: what certainly remains
	WaitTTL time.Duration `json:"wait_ttl,omitempty"`

	Queue    bool `json:"queue,omitempty"`
	Bury     bool `json:"bury,omitempty"`
	Holds    int  `json:"holds,omitempty"`
	Position int  `json:"position,omitempty"`

	// Of calls of the library, and of the register.
	Party   int `json:"party,omitempty"`  // who acts, unique in its worker: nested calls have the same
	Handle  int `json:"handle,omitempty"` // of a hold, unique in its worker
	Serial  int `json:"serial,omitempty"` // of a write, unique in its worker
	Base    int `json:"base,omitempty"`   // the version that a write builds on
	Version int `json:"version,omitempty"`
}

// What is recorded. Op of a record is one of these.
const (
	opAcquire = "acquire" // of the store
	opRenew   = "renew"
	opRelease = "release"
	opEvent   = "event"

	opLock   = "lock" // of the library
	opEnd    = "end"  // of a claim
	opUnlock = "unlock"
	opClose  = "close"

	opRead  = "read" // of the register
	opWrite = "write"

	opSeen  = "seen"  // by the observer
	opStall = "stall" // the process did not run
	opFault = "fault" // by the driver
	opReady = "ready" // the worker has opened its store
)

// What an operation can come to. Of a store only three matter: done, certainly
// not, and unknown; which "certainly not" it was is told for the reader.
const (
	done     = "done"
	held     = "held"
	queued   = "queued"
	lost     = "lost"
	busy     = "busy"
	upgrade  = "upgrade"
	refused  = "refused"
	unknown  = "unknown"
	unlocked = "unlocked"
	stopped  = "cancelled"
)

// outcome says what an error of a store means.
func outcome(err error) string {
	switch {
	case err == nil:
		return done
	case errors.Is(err, store.ErrLost):
		return lost
	case errors.Is(err, store.ErrHeld):
		return busy
	case errors.Is(err, store.ErrUpgrade):
		return upgrade
	case errors.Is(err, store.ErrRefused), errors.Is(err, store.ErrForeignKey), errors.Is(err, store.ErrClosed):
		return refused
	}
	return unknown
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// journal writes records down as they happen, one in a line and one in a write,
// so that a process that is killed has left all that it had acknowledged.
type journal struct {
	worker int
	mu     sync.Mutex
	w      io.Writer
}

func (j *journal) add(r record) {
	r.Worker = j.worker
	line, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.w.Write(append(line, '\n')) // the driver has gone: so does this process
}
