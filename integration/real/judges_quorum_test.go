package real

import (
	"strings"
	"testing"
)

// What is wrong of one store and what is wrong of a quorum, whose waiters may have
// parts of a grant from before, and whose events only say that asking is worth it.
func TestQuorumJudges(t *testing.T) {
	for _, c := range []struct {
		name        string
		tell        func(s *story)
		one, quorum string // what the first violation contains; empty: there is none
	}{
		{"a reader who waited has a smaller token than one who came later", func(s *story) {
			s.queued(2, 0, 1, 1, 5, reading)
			s.held(1, 2, 3, 10, reading)
			s.queued(2, 4, 5, 1, 8, reading)
			s.held(2, 6, 7, 9, reading)
		}, "not greater", ""},
		{"a reader who came later has a smaller token", func(s *story) {
			s.held(1, 2, 3, 10, reading)
			s.held(2, 4, 5, 9, reading)
		}, "not greater", "not greater"},
		{"a token of two", func(s *story) {
			s.held(1, 2, 5, 10, reading)
			s.held(2, 3, 4, 10, reading)
		}, "both have token", "both have token"},
		{"a waiter is woken in vain", func(s *story) {
			s.held(1, 0, 1, 10)
			s.queued(2, 2, 3, 1, 10)
			s.event(2, 4, 0)
			s.queued(2, 5, 6, 1, 10)
			s.release(1, 7, 8)
			s.held(2, 9, 10, 11)
		}, "", ""},
		{"two at once", func(s *story) {
			s.held(1, 0, 1, 10)
			s.held(2, 2, 3, 11)
		}, "at least", "at least"},
	} {
		for _, quorum := range []bool{false, true} {
			var s story
			c.tell(&s)
			e := &evidence{records: s, TTL: aLease, Quorum: quorum, Ends: never}
			want := c.one
			if quorum {
				want = c.quorum
			}
			found := e.judge().violations
			if want == "" && len(found) > 0 || want != "" && (len(found) == 0 || !strings.Contains(found[0], want)) {
				t.Errorf("%s, quorum %v: violations %q, want one of %q", c.name, quorum, found, want)
			}
		}
	}
}
