package request

import (
	"errors"
	"fmt"
	"time"
)

// Standing is what is known of a request while it is not granted: for the error of a call that gives up,
// and for the log of a slow wait.
type Standing struct {
	HeldBy    string    // label of a hold in the way; "" if the store has not said
	HeldSince time.Time // when that hold was granted; zero if the store has not said. A round trip early at most
	Trouble   error     // why the store has confirmed nothing lately; nil if it has

	reply error // the last unknown outcome that was not silence
}

// add notes an unknown outcome. A reply says more about the cause than the silence that came after it.
func (s *Standing) add(err error) {
	s.Trouble = err
	if !errors.Is(err, errNoReply) {
		s.reply = err
	} else if s.reply != nil {
		s.Trouble = fmt.Errorf("%v, and before that: %w", err, s.reply)
	}
}

// trouble is that of the last request, if its outcome is unknown. r.mu is locked.
func (r *Request) trouble() error {
	if r.standing == nil {
		return nil
	}
	return r.standing.Trouble
}

// Standing says how the request stands. A request under way is a trouble if no request of the id was
// confirmed before. After a confirmed one it is a trouble when the answer is late: an answer takes a
// while, and an outage has to be told from that.
func (r *Request) Standing() (st Standing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.standing != nil {
		st = *r.standing
	}
	sent := r.base
	if r.poll != nil {
		sent = r.poll.sent
	}
	if r.inFlight && (!r.present || time.Since(sent) >= r.config.Timeout/4) {
		st.add(silentSince(sent))
	}
	return st
}
