package quorum

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/dlock-go/dlock/store"
)

// Why nothing of an earlier try can harm a later one, and why tokens still strictly increase. A try is one use of an
// acquisition id at one node. The node knows it by an id that no other try has. A release that was sent ends a try: the
// next request to that node is another one.
//
//  1. A late release finds its own try only. So a vote of a later try ends by its own release, with its lease, or with
//     the data of the node, as if there had been no earlier try.
//  2. A late request can make a hold of its own try only. The release of a try whose request is unanswered buries it,
//     so this hold cannot come after the release. It is not renewed, and a late answer is noted of its own try
//     only.
//  3. A late answer to a renewal or a raise is about the try that was asked. It counts in its own call only.
//  4. So at each node the votes of two owners exclude each other as the holds do. Two majorities have a node in common.
//     No owner is granted the lock beside a holder.
//  5. What an earlier try left belongs to the same owner, so the node takes a later try for a re-entry, and
//     answers with the old token. That token may have been reported. A new grant of an owner without a
//     hold here takes a token above all that this handle has seen, if a vote has such an answer. So it does if the
//     node was asked for the try before: the first answer, which may be lost, gave the token.
//  6. What an earlier try left began after each hold of another owner that counted there had ended, because the
//     two exclude each other. So the old token is above the tokens of those. Together with 5, a new
//     token is above each token that was reported before: the rest is the proof of commit.
//
// Package internal/explore checks this, and finds the error when tries share an id or when a re-entry's token is taken
// for a new one. There a try is asked for once; TestTokenAfterALostReentry asks twice.

// try is one use of an acquisition id at one node. It has one request on its way at most, so answers come in order. It
// ends when its release is sent.
type try struct {
	id      string        // at the node
	asked   chan struct{} // closed when the request on its way is answered; nil: there is none
	ended   bool          // no more requests are sent
	unknown bool          // some request has no known outcome
	has     bool          // it may have a hold or a place
	gone    bool          // its node has confirmed its release: nothing of it is there
	first   uint64        // the token that its hold was granted with
	token   uint64        // that its hold has, which may have been raised; 0: it has none, as far as is known
}

// newTry draws an id that begins as the acquisition's does, by which people recognize it.
func newTry(original string) *try {
	var random [16]byte
	rand.Read(random[:])
	return &try{id: store.Short(original) + hex.EncodeToString(random[:])[:32-6]}
}

// ownerAlias is the id by which the nodes know an owner of this handle. It is the same at all of them, so that one
// server that is given twice grants twice, and is noticed.
func ownerAlias(owner, salt string) string {
	sum := sha256.Sum256([]byte(salt + owner))
	return store.Short(owner) + hex.EncodeToString(sum[:])[:32-6]
}

// open: a request may still arrive at the node, or may have arrived without an answer.
func (t *try) open() bool { return t.asked != nil || t.unknown }

// anything: it may leave something at the node.
func (t *try) anything() bool { return !t.gone && (t.has || t.open()) }

func (t *try) granted() bool { return t.token > 0 }
func every(*try) bool        { return true }

// start notes that a request of a try is sent, which is to be told its outcome. It waits for the one before, as long as
// ctx and the caller do. It returns false if nothing is to be sent.
func (e *entry) start(ctx context.Context, caller <-chan struct{}, t *try) bool {
	for {
		e.t.mu.Lock()
		before, ended := t.asked, t.ended
		if before == nil && !ended {
			t.asked = make(chan struct{})
		}
		e.t.mu.Unlock()
		if before == nil || ended {
			return !ended
		}
		select {
		case <-before:
		case <-ctx.Done():
			return false
		case <-caller:
			return false
		}
	}
}

// told notes what a node answered to a request of a try. It reports whether the node lacks a grant that a majority has.
func (e *entry) told(t *try, g store.Grant, err error) (lacks bool) {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	close(t.asked)
	t.asked = nil
	switch {
	case err == nil && g.Held:
		if !t.granted() {
			t.first = g.Token
		}
		t.has, t.token = true, max(t.token, g.Token)
	case err == nil:
		t.has, t.token = true, 0
	case certain(err):
		t.token = 0
	default:
		t.unknown = true
	}
	return e.phase == granted && e.lacks(t)
}

// lacks: the node of a try has neither a place nor the token of the hold. The caller has the mutex.
func (e *entry) lacks(t *try) bool {
	return t != nil && t.asked == nil && (!t.has || t.granted() && t.token < e.token)
}

// lost notes that a node has no hold of a try.
func (e *entry) lost(t *try) {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	t.token = 0
}

// raised notes the token that a node gave to the hold of a try.
func (e *entry) raised(t *try, token uint64) {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	if t.granted() {
		t.token = max(t.token, token)
	}
}

// end ends those of the tries, and returns those of them that may have left something, by node. The caller has the
// mutex.
func (e *entry) end(which func(*try) bool) [][]*try {
	ended := make([][]*try, len(e.tries))
	for i, t := range e.tries {
		if t != nil && which(t) {
			delete(e.t.tries, t.id)
			t.ended, e.tries[i] = true, nil
			if t.anything() {
				ended[i] = []*try{t}
				e.left[i] = append(e.left[i], t)
			}
		}
	}
	return ended
}

// dismiss notes that the release of a try is not repeated any more. A try that its entry still has may be renewed, so it
// is gone only if node i has confirmed that.
func (e *entry) dismiss(i int, t *try, gone bool) {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	t.gone = t.gone || gone
	e.left[i] = slices.DeleteFunc(e.left[i], func(other *try) bool { return other == t })
}

// giveUp is end for a request that was not granted. A repeated request of a hold keeps what it has.
func (e *entry) giveUp(which func(*try) bool) [][]*try {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	if e.phase == granted {
		return nil
	}
	return e.end(which)
}

// ref is what a node is asked to renew or release.
func (e *entry) ref(ref store.Ref, t *try) store.Ref {
	ref.ID, ref.Owner = t.id, e.o.id
	return ref
}

// burying is ref with the id to be buried if a request of the try may still arrive. needed says whether the node may
// have anything of the try.
func (e *entry) burying(ref store.Ref, t *try) (_ store.Ref, needed bool) {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	ref.Bury = t.open()
	return e.ref(ref, t), t.anything()
}
