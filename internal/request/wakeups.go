package request

import (
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock/store"
)

// wakeups takes the store's events to the requests that wait in the background. A request is entered
// when it goes there, so that a lock that is granted at once leaves no trace here. An event that comes
// before waits among the recent ones. If too many others come before it is looked for, it
// is lost, and its waiter asks again when the store's Retry has passed.
type wakeups struct {
	requests sync.Map      // *Request by id
	resets   atomic.Uint64 // events that say "anything may have changed"

	mu     sync.Mutex
	recent [128]store.Event // of ids that were not entered, a ring; most are of abandoned requests
	next   int
}

// enter has r get its events from now on, and returns one that came before, if any.
func (w *wakeups) enter(r *Request) (missed store.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests.Store(r.req.ID, r)
	for _, e := range w.recent {
		if e.ID == r.req.ID && e.Token >= missed.Token {
			missed = e
		}
	}
	return missed
}

// remove has r get no more events.
func (w *wakeups) remove(r *Request) { w.requests.Delete(r.req.ID) }

// Listening returns how many requests in the background wait for events.
func (d *Sender) Listening() (n int) {
	d.wakeups.requests.Range(func(_, _ any) bool { n++; return true })
	return n
}

// deliver is the sink that the store calls.
func (w *wakeups) deliver(e store.Event) {
	if e.ID == "" {
		// Counted first: a request that is about to be entered looks at the count after it.
		w.resets.Add(1)
		w.requests.Range(func(_, r any) bool {
			r.(*Request).onEvent(e)
			return true
		})
		return
	}
	w.mu.Lock()
	r, ok := w.requests.Load(e.ID)
	if !ok {
		w.recent[w.next] = e
		w.next = (w.next + 1) % len(w.recent)
	}
	w.mu.Unlock()
	if ok {
		r.(*Request).onEvent(e)
	}
}
