package property

import (
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/store"
)

// told is what a client has been told of one acquisition id. From this alone
// follows for how long it may believe to hold: until the sending of the last
// confirmed request plus the lease, less the margin. Where two things came at
// once and either may have been looked at first, there is a range.
type told struct {
	store.Request
	base        time.Time // sending of the last confirmed ask; before any, of the first
	token       uint64    // of the last grant
	tokens      []uint64  // of all: more than one if a hold was broken of which it did not know
	first, last time.Time // the hold ends between these
	promoted    bool      // an event came
	gone        bool      // a renewal was answered so
	missing     bool      // from the count of its owner's holds in a later grant
}

// validity is what a claim has of a lease: all but 1 % and 2 ms, for unequal
// clocks. It is written out again here, so that it cannot change unnoticed.
func validity(lease time.Duration) time.Duration {
	return lease - lease/100 - 2*time.Millisecond
}

// promised is what may be believed of a lease that the store gave at a grant. It
// may be longer than TTL, after a promotion with a long WaitTTL; but the first
// renewal cuts it to TTL, perhaps without a reply.
func (k *told) promised(lease time.Duration) time.Duration {
	return validity(min(lease, k.TTL))
}

func (k *told) granted(token uint64) {
	k.token = token
	if !slices.Contains(k.tokens, token) {
		k.tokens = append(k.tokens, token)
	}
}

func (l *link) asked(req store.Request, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told[req.ID] == nil {
		l.told[req.ID] = &told{Request: req, base: sent}
	}
}

func (l *link) answered(req store.Request, g store.Grant, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.told[req.ID]
	k.base = sent
	until := sent.Add(k.promised(req.WaitTTL)) // should the event be looked at from now on
	if g.Held {
		if g.Holds == 1 {
			l.miss(k)
		}
		k.granted(g.Token)
		until = sent.Add(k.promised(g.TTL))
	}
	switch {
	case k.promoted && !req.Fixed:
		k.last = latest(k.last, until)
	case g.Held:
		k.first, k.last = until, until
	}
}

// miss notes that the store knows no other hold of the owner than k. A client that had
// another one, and has not given k up, notices the loss. l.mu is locked.
func (l *link) miss(k *told) {
	for _, other := range l.told {
		if other != k && other.Name == k.Name && other.Owner == k.Owner && other.token > 0 {
			other.missing = true
		}
	}
}

func (l *link) pushed(e store.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.told[e.ID]
	if k == nil || k.Fixed || e.Token <= k.token {
		return // for a fixed lease the client asks again; an older event is no news
	}
	until := k.base.Add(k.promised(k.WaitTTL))
	if k.token == 0 {
		k.first = until
	}
	k.granted(e.Token)
	k.promoted = true
	k.last = latest(k.last, until)
}

func (l *link) renewed(ref store.Ref, err error, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, now := l.told[ref.ID], time.Now()
	switch {
	case errors.Is(err, store.ErrLost):
		k.gone = true
	case err != nil:
	default:
		// A confirmation that comes when the hold is over revives nothing.
		until := sent.Add(validity(ref.TTL))
		if now.Before(k.first) {
			k.first = latest(k.first, until)
		}
		if now.Before(k.last) {
			k.last = latest(k.last, until)
		}
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// of returns what is known of the grants with this token and mode: one, unless
// an owner's requests were granted side by side.
func (l *link) of(token uint64, mode store.Mode) (ids []told) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.told {
		if k.Mode == mode && slices.Contains(k.tokens, token) {
			ids = append(ids, *k)
		}
	}
	slices.SortFunc(ids, func(a, b told) int { return a.first.Compare(b.first) })
	return ids
}
