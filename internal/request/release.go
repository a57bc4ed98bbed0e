package request

import (
	"errors"
	"time"

	"github.com/dlock-go/dlock/store"
)

// Abandon ends a request that nobody wants any more. If anything of the id may be at the store it is
// released in the background, when the request under way has been answered. Further answers and events
// change nothing.
func (r *Request) Abandon() { r.abandon(true) }

// AbandonLost is Abandon for a hold that was lost: the store drops it by itself soon, so its release
// waits behind more urgent ones.
func (r *Request) AbandonLost() { r.abandon(false) }

// abandon ends the request, and releases what it may have at the store.
func (r *Request) abandon(urgent bool) {
	r.mu.Lock()
	if r.phase == abandoned {
		r.mu.Unlock()
		return
	}
	wasAsking := r.phase == asking
	r.phase = abandoned
	polled := r.poll != nil && r.poll.then != nil
	if polled {
		r.poll.then = nil
		r.poll.timer.Stop()
	}
	// The request under way may still be granted. Its end does what is left to do then (see endCall), and
	// knows what that is.
	present, canRelease := r.present || r.unknown, !r.inFlight || !wasAsking
	r.mu.Unlock()
	if polled {
		r.sender.wakeups.remove(r)
	}
	if canRelease {
		r.clear(present, urgent)
	}
}

// clear has the store forget an abandoned request, if anything of it may be there.
func (r *Request) clear(present, urgent bool) {
	if present {
		r.sender.releaser.add(r, urgent)
	} else {
		r.markCleared()
	}
}

// Cleared returns a channel that is closed when the request was abandoned and
// nothing of it is at the store, or nothing can be done about it any more. It is
// called before Abandon.
func (r *Request) Cleared() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cleared == nil {
		r.cleared = make(chan struct{})
	}
	return r.cleared
}

// markCleared closes the channel of Cleared.
func (r *Request) markCleared() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cleared != nil {
		close(r.cleared)
		r.cleared = nil
	}
}

// Release gives a hold back and tries for the timeout, or until stop closes, to have
// that confirmed. It returns
//
//   - nil: the store has confirmed it;
//   - an error that matches store.ErrLost: the hold was gone before;
//   - store.ErrClosed: the store was closed, the hold is left to its lease;
//   - ErrUnavailable with the store's error: the release goes on in the background.
func (r *Request) Release(stop <-chan struct{}) error {
	r.mu.Lock()
	ref := r.ref()
	if r.inFlight {
		// What the request under way gets is released once more: it may arrive when the id is
		// not buried any more. Not earlier, or the first release would find the hold gone.
		defer r.Abandon()
	}
	r.mu.Unlock()
	now := time.Now()
	deadline := now.Add(r.config.Timeout)
	pause := r.config.backoff()
	maybe := false // an earlier try may have done it, its reply lost
	for {
		err := r.tryRelease(ref, now, deadline.Sub(now))
		switch {
		case err == nil || maybe && errors.Is(err, store.ErrLost):
			return nil
		case errors.Is(err, store.ErrClosed):
			r.sender.warn("dlock: not released, as the store is closed; the lease ends it", "name", ref.Name, "id", store.Short(ref.ID))
			r.sender.releaser.add(r, false) // which cannot release it either, and counts it
			return WhichClosed(err)
		case settled(err):
			return err
		case time.Until(deadline) <= pause.Limit || !pause.Sleep(stop):
			r.sender.warn("dlock: release not confirmed yet", "name", ref.Name, "id", store.Short(ref.ID), "error", err)
			r.sender.releaser.add(r, true)
			return Unavailable(err)
		}
		now = time.Now()
		maybe = maybe || !errors.Is(err, store.ErrRefused)
	}
}

// tryRelease makes one call. If the store panics or ends the goroutine, it may have done anything,
// and the release goes on in the background.
func (r *Request) tryRelease(ref store.Ref, now time.Time, timeout time.Duration) error {
	answered := false
	defer func() {
		if !answered {
			r.sender.releaser.add(r, true)
		}
	}()
	err := r.sender.release(ref, now, timeout)
	answered = true
	return err
}

// Ref names what the request may have at the store, to be released. While one of
// its requests may still arrive there, the id has to be buried.
func (r *Request) Ref() store.Ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ref()
}

// ref is Ref with r.mu locked.
func (r *Request) ref() store.Ref {
	return store.Ref{
		Name: r.req.Name, Owner: r.req.Owner, ID: r.req.ID, Mode: r.req.Mode,
		TTL:  max(r.req.TTL, r.req.WaitTTL),
		Bury: r.unknown || r.inFlight,
	}
}

// RenewalRef names the hold for a renewal.
func (r *Request) RenewalRef() store.Ref {
	return store.Ref{Name: r.req.Name, Owner: r.req.Owner, ID: r.req.ID, Mode: r.req.Mode, TTL: r.req.TTL}
}
