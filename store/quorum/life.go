package quorum

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// life is what a handle knows of a node's restarts. A node that restarted may have forgotten votes that somebody
// relies on: with them it was part of a majority, and without them it would be part of another one. So for as long as
// the longest lease its votes do not count.
//
// A vote is judged by the life that the node says it leads after the vote was given. If that is the one it led before
// the vote was asked for, it has lived through all of it, and its vote rests on all that it ever confirmed, but for
// what came before that life and has run out by now. Asking before would prove less, and asking first and after would
// cost a round trip.
//
// At the first contact nothing is known from before. Then only the age counts that the node states: it has to have
// lived as long as the longest lease. That makes a lock unavailable for that long after all nodes were started for
// the first time. A fresh handle cannot tell this from a power cut, after which holders of what was lost may still be
// at work.
type life struct {
	mu   sync.Mutex
	id   string    // "" before the first contact
	seen time.Time // it led this life then
	born time.Time // since when it has forgotten nothing; zero: since ever
}

// now returns the present life of a node, as far as it is known.
func (l *life) now() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id
}

// left is for how long the node's votes do not count yet, by the longest lease that is known by now: a handle may be
// asked for a longer one than when it met the node.
func (l *life) left(now time.Time, lease time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, lease-now.Sub(l.born))
}

// excluded says why a node's vote does not count now; nil: it does.
func (l *life) excluded(now time.Time, lease time.Duration) error {
	if left := l.left(now, lease); left > 0 {
		return fmt.Errorf("%w; it votes in %v", errRestarted, left.Round(time.Millisecond))
	}
	return nil
}

// judge decides on a vote that was asked for at sent, when the node led the life before as far as was known, now that
// it says that it leads the life id since age. lease is the longest one. A fresh node has lost nothing before the first
// contact, see Store.fresh, but it may have restarted after its vote, so its vote counts when it is asked once more.
func (l *life) judge(before string, sent time.Time, id string, age, lease time.Duration, fresh bool) error {
	now := time.Now()
	l.mu.Lock()
	if l.id != id && (l.id != "" || !fresh) {
		// Since its start it has forgotten nothing. An age that reaches back beyond the last time that it was known
		// to live otherwise is none.
		if l.id != "" && age > now.Sub(l.seen) {
			age = 0
		}
		l.born = now.Add(-age)
	}
	l.id, l.seen = id, now
	l.mu.Unlock()
	changed := before != "" && before != id || before == "" && age < now.Sub(sent)
	if changed && lease > 0 { // without a lease it has kept what it confirmed
		return errRestarted
	}
	return l.excluded(now, lease)
}

// twins is the error of a quorum in which one server is two nodes, as far as is known: two votes of one server would
// be a majority of three.
func (s *Store) twins() error {
	for i, n := range s.nodes {
		server := serverOf(n.life.now())
		for _, other := range s.nodes[:i] {
			if server != "" && serverOf(other.life.now()) == server {
				return fmt.Errorf("%w: quorum: nodes %d and %d are one server", store.ErrRefused, other.index, i)
			}
		}
	}
	return nil
}

// serverOf returns the part of a life's id that names the server, see [store.Incarnator].
func serverOf(id string) string {
	server, _, _ := strings.Cut(id, "/")
	return server
}
