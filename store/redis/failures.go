package redis

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/store"
)

// failures remembers the ids whose requests have failed, so that an id which was
// refused for certain each time leaves no tombstone: a request of it cannot arrive late.
type failures struct {
	number atomic.Int64 // of ids, so that a release without failures takes no lock
	mu     sync.Mutex
	ids    map[string]failure
}

type failure struct {
	unknown bool      // a request of it may still arrive
	until   time.Time // a tombstone would end then
}

// begin is called before a request of an id is sent. It forgets that earlier ones were refused for
// certain, because this one may arrive late. The core has one request of an id under way at a time.
func (f *failures) begin(id string) {
	if f.number.Load() == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ids[id].unknown {
		delete(f.ids, id)
		f.number.Store(int64(len(f.ids)))
	}
}

// note remembers a failed request. Other certain refusals than ErrNotRun need no
// note: the core does not bury after them.
func (f *failures) note(req store.Request, err error) {
	var network *net.OpError
	certain := errors.Is(err, ErrNotRun) || errors.Is(err, errNotSent) || errors.As(err, &network) && network.Op == "dial"
	for _, sentinel := range []error{store.ErrForeignKey, store.ErrRefused} {
		if errors.Is(err, sentinel) {
			return
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.forget(now)
	if f.ids == nil {
		f.ids = make(map[string]failure)
	}
	f.ids[req.ID] = failure{
		unknown: f.ids[req.ID].unknown || !certain,
		until:   now.Add(max(req.TTL, req.WaitTTL)),
	}
	f.number.Store(int64(len(f.ids)))
}

// forget looks at two ids, which the map picks at random, and forgets those whose tombstone
// would have ended. Each failure and each release does that, so ids do not pile up, and none
// is left some time after the last failure. The caller holds mu.
func (f *failures) forget(now time.Time) {
	looked := 0
	for id, failed := range f.ids {
		if failed.until.Before(now) {
			delete(f.ids, id)
		}
		if looked++; looked == 2 {
			break
		}
	}
	f.number.Store(int64(len(f.ids)))
}

// mayArrive reports whether a release has to bury its id.
func (f *failures) mayArrive(ref store.Ref) bool {
	if f.number.Load() == 0 {
		return ref.Bury
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	failed, ok := f.ids[ref.ID]
	f.forget(time.Now())
	return ref.Bury && (!ok || failed.unknown)
}
