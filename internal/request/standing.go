package request

import "time"

// Standing is what is known of a request while it is not granted, for the error of a
// call that gives up.
type Standing struct {
	HeldBy  string // label of a hold in the way; "" if the store has not said
	Trouble error  // why the store has confirmed nothing lately; nil if it has
}

// Standing says how the request stands. A request under way is a trouble if no request
// of the id was confirmed before. After a confirmed one it is a trouble when the answer
// is late: an answer takes a while, and an outage has to be told from that.
func (r *Request) Standing() (st Standing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	st.HeldBy, st.Trouble = r.heldBy, r.trouble
	sent := r.base
	if r.poll != nil {
		sent = r.poll.sent
	}
	if r.inFlight && (!r.present || time.Since(sent) >= r.config.Timeout/4) {
		st.Trouble = reason(st.Trouble, silentSince(sent))
	}
	return st
}
