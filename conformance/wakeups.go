package conformance

import "github.com/dlock-go/dlock/store"

const (
	saysEvent  = "An Event with the id and the token is pushed to the handle through which the waiter last asked with Queue."
	saysListen = "Any number may be registered; each gets every event."
)

var wakeupCases = []testCase{
	{
		name: "writer",
		says: saysEvent, needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W")
			a.hold()
			w.queue()
			a.release()
			h.wake(w)
		},
	},
	{
		name: "all leading readers",
		says: saysEvent, needs: fair,
		run: func(h *harness) {
			a, r1, r2 := h.exclusive("A"), h.shared("R1"), h.shared("R2")
			a.hold()
			r1.queue()
			r2.queue()
			a.release()
			h.wake(r1)
			h.wake(r2)
		},
	},
	{
		name: "same token as the answer",
		says: saysEvent, needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W").tokens(3)
			a.hold()
			w.queue()
			a.release()
			pushed := h.wake(w)
			if w.hold().Token != pushed {
				w.wrong("token=%d, as the event said", pushed)
			}
		},
	},
	{
		name: "one for each grant",
		says: "A promoted waiter becomes a hold ... An Event with the id and the token is pushed", needs: fair,
		run: func(h *harness) {
			holder := h.exclusive("A")
			holder.hold()
			var waiters []*claim
			for i := range 8 {
				w := h.exclusive([]string{"W1", "W2", "W3", "W4", "W5", "W6", "W7", "W8"}[i])
				w.queue()
				waiters = append(waiters, w)
			}
			for i, w := range waiters {
				holder.release()
				h.wake(w)
				holder = w
				if i == 3 {
					h.quiet()
					for _, behind := range waiters[4:] {
						h.wantNoWake(behind)
					}
				}
			}
			h.quiet()
			for _, w := range waiters {
				if n := h.heardOf(w); n != 1 {
					h.failf("one event for each grant", "%d events for %v", n, w)
				}
			}
			// A reconnect or two may happen; a zero event for each grant is a
			// way to wake everybody.
			if n := h.heardOf(nil); n >= len(waiters) {
				h.failf("one event for each grant", "%d zero events in %d grants", n, len(waiters))
			}
		},
	},
	{
		name: "head cancelled",
		says: "Every removal promotes. The removals are a release, a place given up", needs: fair,
		run: func(h *harness) {
			a, w, r := h.shared("A"), h.exclusive("W"), h.shared("R")
			a.hold()
			w.queue()
			r.queue()
			w.release()
			h.wake(r)
		},
	},
	{
		name: "promoted and given up",
		says: "Release gives up a hold, or a place in the queue, and promotes.", needs: fair,
		run: func(h *harness) {
			// The first is granted just as its client goes away.
			a, w1, w2 := h.exclusive("A"), h.exclusive("W1"), h.exclusive("W2")
			a.hold()
			w1.queue()
			w2.queue()
			a.release()
			w1.release()
			h.wake(w2)
		},
	},
	{
		name: "none for who has left",
		says: "Release gives up a hold, or a place in the queue", needs: fair,
		run: func(h *harness) {
			a, gone, w := h.exclusive("A"), h.exclusive("G"), h.exclusive("W")
			a.hold()
			gone.queue()
			w.queue()
			gone.release()
			a.release()
			h.wake(w)
			h.quiet()
			h.wantNoWake(gone)
		},
	},
	{
		name: "none for who still waits",
		says: saysPromote, needs: fair,
		run: func(h *harness) {
			a, b, w := h.shared("A"), h.shared("B"), h.exclusive("W")
			a.hold()
			b.hold()
			w.queue()
			a.release()
			h.quiet()
			h.wantNoWake(w)
		},
	},
	{
		name: "asked twice, woken once",
		says: "Every operation is idempotent by id.", needs: fair,
		run: func(h *harness) {
			a, w := h.exclusive("A"), h.exclusive("W")
			a.hold()
			w.queue()
			w.queue()
			a.release()
			h.wake(w)
			h.quiet()
			if n := h.heardOf(w); n != 1 {
				h.failf("one event", "%d events for %v", n, w)
			}
		},
	},
	{
		name: "only its handle",
		says: saysEvent, needs: fair | twoHandles,
		run: func(h *harness) {
			a, w, v := h.exclusive("A"), h.exclusive("W").through(h.other), h.exclusive("V")
			a.hold()
			w.queue()
			v.queue()
			a.release()
			h.wantHeardBy(w, h.other)
			w.release()
			h.wantHeardBy(v, h.main)
		},
	},
	{
		name: "every sink",
		says: saysListen, needs: fair,
		run: func(h *harness) {
			second, third := make(chan store.Event, 16), make(chan store.Event, 16)
			defer h.listen(h.main, func(e store.Event) { offer(second, e) })()
			defer h.listen(h.main, func(e store.Event) { offer(third, e) })()
			a, w := h.exclusive("A"), h.exclusive("W")
			a.hold()
			w.queue()
			a.release()
			h.wake(w)
			h.wantOffered(second, w)
			h.wantOffered(third, w)
		},
	},
	{
		name: "stopped sink",
		says: saysListen, needs: fair,
		run: func(h *harness) {
			stopped := make(chan store.Event, 16)
			stop := h.listen(h.main, func(e store.Event) { offer(stopped, e) })
			stop()
			stop()
			h.quiet() // what was on its way may still arrive
			for len(stopped) > 0 {
				<-stopped
			}
			a, w := h.exclusive("A"), h.exclusive("W")
			a.hold()
			w.queue()
			a.release()
			h.wake(w)
			h.quiet()
			if len(stopped) > 0 {
				h.failf("none after stop", "event %v at a stopped sink", <-stopped)
			}
		},
	},
}

// wantHeardBy wants the event of c at one handle and at no other.
func (h *harness) wantHeardBy(c *claim, s store.Store) {
	h.wake(c)
	h.quiet()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		if e.ID == c.req.ID && e.via != s {
			h.mu.Unlock()
			defer h.mu.Lock()
			h.failf("at the handle it was queued through only", "the event of %v at another handle", c)
		}
	}
}

// offer does not block, as a sink must not.
func offer(to chan store.Event, e store.Event) {
	select {
	case to <- e:
	default:
	}
}

// wantOffered wants the event of c among what a sink was offered.
func (h *harness) wantOffered(from chan store.Event, c *claim) {
	h.quiet()
	for {
		select {
		case e := <-from:
			if e.ID == c.req.ID {
				return
			}
		default:
			h.failf("each sink gets every event", "no event for %v at a second sink", c)
		}
	}
}
