package request

import (
	"errors"
	"sync/atomic"

	"github.com/dlock-go/dlock/store"
)

// counts are the calls of the store so far. They are spread over cache lines by the
// id that a call is about, so that calls of many goroutines do not contend.
type counts struct {
	lines  [16]countLine
	pushed atomic.Int64 // grants that came as an event
}

type countLine struct {
	calls, failed atomic.Int64
	_             [112]byte // two lines of 64 bytes: some processors fetch pairs
}

// count counts a call about an id that ended with err. It failed if the store gave
// no usable answer: an outcome that is unknown, or a refusal.
func (k *counts) count(id string, err error) {
	line := &k.lines[0]
	if id != "" {
		line = &k.lines[(id[0]+9*(id[0]>>6))&15] // the value of a hexadecimal digit
	}
	line.calls.Add(1)
	if isFailure(err) {
		line.failed.Add(1)
	}
}

func isFailure(err error) bool {
	return err != nil && (!Certain(err) || errors.Is(err, store.ErrRefused))
}

// Calls returns how many calls of the store have ended, how many of them had no usable
// answer, and how many grants came as an event.
func (d *Sender) Calls() (calls, failed, pushed int64) {
	for i := range d.counts.lines {
		calls += d.counts.lines[i].calls.Load()
		failed += d.counts.lines[i].failed.Load()
	}
	return calls, failed, d.counts.pushed.Load()
}
