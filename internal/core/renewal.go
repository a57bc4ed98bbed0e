package core

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/watchdog"
)

// renew is the watchdog's way to the store: one call for a batch of leases. Only ErrLost
// and ErrForeignKey mean gone; any other answer leaves the lease to its deadline.
func (c *Client) renew(ctx context.Context, batch []*watchdog.Lease) []watchdog.Outcome {
	refs := make([]store.Ref, len(batch))
	for i, lease := range batch {
		refs[i] = lease.Value.(*place).request.RenewalRef()
	}
	outcomes := make([]watchdog.Outcome, len(batch)) // Unknown, unless told otherwise
	errs := c.sender.Renew(ctx, refs)
	errs = errs[:min(len(errs), len(batch))]
	for i, err := range errs {
		switch {
		case err == nil:
			outcomes[i] = watchdog.Renewed
			c.renewed.Add(1)
		case errors.Is(err, store.ErrLost) || errors.Is(err, store.ErrForeignKey):
			// Where something else is under the lock's key, the hold is not there any more.
			outcomes[i] = watchdog.Lost
		}
	}
	c.renewals.note(c, batch, outcomes, errs)
	return outcomes
}

// renewalLog logs when renewals of some holds begin to fail, and when none of them
// fails any more: once each for every cause, not for every try. Its zero value is
// ready to use.
type renewalLog struct {
	failing atomic.Int64 // holds with a trouble; read without mu

	mu     sync.Mutex
	causes map[string]*renewalTrouble
}

// renewalTrouble is one lasting cause. The place of each hold concerned refers to it.
type renewalTrouble struct {
	cause string
	holds int // whose renewal fails so
	most  int // of them at a time
}

// maxCauses bounds how many causes are told apart, lest error texts that differ each
// time fill the memory.
const maxCauses = 16

// note takes what one batch of renewals came to. errs may be shorter than the batch.
func (r *renewalLog) note(c *Client, batch []*watchdog.Lease, outcomes []watchdog.Outcome, errs []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var begun []*renewalTrouble
	for i, lease := range batch {
		p := lease.Value.(*place)
		failed := outcomes[i] == watchdog.Unknown
		if failed && p.trouble == nil && i < len(errs) {
			if t := r.join(p, errs[i].Error()); t.holds == 1 {
				begun = append(begun, t)
			}
		}
		// Looked at after join: ended may have looked before it, and found nothing.
		if p.trouble != nil && (!failed || !lease.Valid()) {
			r.leave(c, p)
		}
	}
	for _, t := range begun {
		cause, holds := t.cause, t.holds
		c.logs.add(func() {
			c.log.Warn("dlock: renewals fail; holds are lost when their leases run out", "error", cause, "holds", holds)
		})
	}
}

// join counts p among those whose renewal fails by that cause. r.mu is locked.
func (r *renewalLog) join(p *place, cause string) *renewalTrouble {
	if r.causes == nil {
		r.causes = make(map[string]*renewalTrouble)
	}
	if r.causes[cause] == nil && len(r.causes) >= maxCauses {
		cause = "several causes"
	}
	t := r.causes[cause]
	if t == nil {
		t = &renewalTrouble{cause: cause}
		r.causes[cause] = t
	}
	p.trouble = t
	r.failing.Add(1)
	t.holds++
	t.most = max(t.most, t.holds)
	return t
}

// leave counts p out, which has a trouble. With the last one the trouble is over. r.mu
// is locked.
func (r *renewalLog) leave(c *Client, p *place) {
	t := p.trouble
	p.trouble = nil
	r.failing.Add(-1)
	if t.holds--; t.holds > 0 {
		return
	}
	delete(r.causes, t.cause)
	c.logs.add(func() {
		c.log.Info("dlock: renewals that failed have succeeded or ended", "error", t.cause, "holds", t.most)
	})
}

// ended notes that p is not renewed any more. Nearly always no renewal fails, so it
// costs one look.
func (r *renewalLog) ended(p *place) {
	if r.failing.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.trouble != nil {
		r.leave(p.name.client, p)
	}
}
