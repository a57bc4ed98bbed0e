package core

import (
	"sync"

	"github.com/dlock-go/dlock/watchdog"
)

// renewalLog logs when renewals of some holds begin to fail, and when none of them
// fails any more: once each for every cause, not for every try. Its zero value is
// ready to use.
type renewalLog struct {
	mu     sync.Mutex
	causes map[string]*renewalTrouble
}

// renewalTrouble is one lasting cause.
type renewalTrouble struct {
	cause string
	holds int // whose renewal fails so
	most  int // of them at a time
}

// maxCauses bounds how many causes are told apart, lest error texts that differ each
// time fill the memory.
const maxCauses = 16

// note takes what one batch of renewals came to.
func (r *renewalLog) note(c *Client, batch []*watchdog.Lease, failed map[*place]error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(failed) == 0 && len(r.causes) == 0 {
		return
	}
	var begun []*renewalTrouble
	for _, lease := range batch {
		s := lease.Value.(*place)
		err := failed[s]
		if err == nil {
			r.leave(c, s)
			continue
		}
		if s.trouble.Load() == nil {
			if t := r.join(s, err.Error()); t.holds == 1 {
				begun = append(begun, t)
			}
		}
		if s.over.Load() {
			r.leave(c, s) // it has ended meanwhile
		}
	}
	for _, t := range begun {
		cause, holds := t.cause, t.holds
		c.logs.add(func() {
			c.log.Warn("dlock: renewals fail; holds are lost when their leases run out", "error", cause, "holds", holds)
		})
	}
}

// join counts s among those whose renewal fails by that cause.
func (r *renewalLog) join(s *place, cause string) *renewalTrouble {
	t := r.causes[cause]
	if t == nil && len(r.causes) >= maxCauses {
		cause = "several causes"
		t = r.causes[cause]
	}
	if t == nil {
		t = &renewalTrouble{cause: cause}
		if r.causes == nil {
			r.causes = make(map[string]*renewalTrouble)
		}
		r.causes[cause] = t
	}
	s.trouble.Store(t)
	t.holds++
	t.most = max(t.most, t.holds)
	return t
}

// leave counts s out. With the last one the trouble is over.
func (r *renewalLog) leave(c *Client, s *place) {
	t := s.trouble.Swap(nil)
	if t == nil {
		return
	}
	if t.holds--; t.holds > 0 {
		return
	}
	delete(r.causes, t.cause)
	c.logs.add(func() {
		c.log.Info("dlock: renewals that failed have succeeded or ended", "error", t.cause, "holds", t.most)
	})
}

// ended notes that s is not renewed any more.
func (r *renewalLog) ended(s *place) {
	s.over.Store(true)
	if s.trouble.Load() == nil {
		return // note looks at over after it has stored a trouble
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leave(s.name.client, s)
}
