package property

import (
	"context"
	"errors"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/dlock-go/dlock"
)

// breakName removes all holds of a name by force. Nothing can protect a holder
// from that but the token, so its claim counts as void from now on.
func (w *world) breakName(t *rapid.T) {
	name := w.names[rapid.IntRange(0, len(w.names)-1).Draw(t, "name")]
	holders := w.inspect(t, name).Holders
	if len(holders) == 0 {
		t.Skip()
	}
	for _, e := range holders {
		w.broken[e.Token] = true
	}
	n, err := w.memory.Break(context.Background(), name)
	t.Logf("          break %q: %d holds", name, n)
	if err != nil {
		t.Fatalf("Break: %v", err)
	}
}

// closeClient closes a client and puts a new one in its slot.
func (w *world) closeClient(t *rapid.T) {
	i := rapid.IntRange(0, len(w.clients)-1).Draw(t, "client")
	c, from, fine := w.clients[i], time.Now(), w.quiet()
	t.Logf("          close %s", c)
	c.closed = true // from now on nothing of it is a promise
	err := c.Close()
	if took := time.Since(from); took > 2*w.timeout() {
		t.Fatalf("Close took %v; StoreTimeout is %v", took, w.timeout())
	}
	switch {
	case err == nil:
		w.checkGone(t, c)
	case fine:
		t.Fatalf("Close: %v", err)
	}
	if !fine {
		if err != nil && !errors.Is(err, dlock.ErrUnavailable) {
			t.Fatalf("Close: %v", err)
		}
		w.restless = latest(w.restless, time.Now().Add(w.timeout()+max(leaseTTL, 2*w.options.WaitTTL)+2*time.Second)) // a place may be granted at its end
	}
	for _, h := range w.handles {
		if h.client == c && h.state == held {
			h.state = closed
		}
	}
	w.settle(t)
	for _, p := range w.waiting {
		if p.client == c {
			t.Fatalf("%v goes on waiting after Close", p)
		}
	}
	c.link.set(fair, 0, 0)
	w.clients[i] = w.newClient(t)
}

// storm gives the link of a client other weather.
func (w *world) storm(t *rapid.T) {
	c := w.clients[rapid.IntRange(0, len(w.clients)-1).Draw(t, "client")]
	kind := rapid.SampledFrom([]weather{refused, replyLost, silent, mute, slow}).Draw(t, "weather")
	calls := rapid.SampledFrom([]int{-1, 1, 2, 5}).Draw(t, "calls")
	delay := time.Duration(rapid.SampledFrom([]int{20, 500, 2000}).Draw(t, "delay ms")) * time.Millisecond
	t.Logf("          %s: %s for %d calls, delay %v", c, kind, calls, delay)
	c.link.set(kind, calls, delay)
}

// deafen keeps events from a client, perhaps with an outage in which it is
// granted something and does not get to know before that has run out. Those
// events come late, if they come.
func (w *world) deafen(t *rapid.T) {
	c := w.clients[rapid.IntRange(0, len(w.clients)-1).Draw(t, "client")]
	c.link.block()
	outage := rapid.SampledFrom([]time.Duration{0, w.options.WaitTTL / 2, w.options.WaitTTL + 1}).Draw(t, "outage")
	t.Logf("          %s: no events; an outage of %v", c, outage)
	if outage == 0 {
		return
	}
	c.link.set(refused, -1, 0)
	i := slices.IndexFunc(w.handles, func(h *handle) bool { return h.state == held && h.client != c })
	if i >= 0 && rapid.Bool().Draw(t, "unlock meanwhile") {
		w.unlockHandle(t, w.handles[i])
	}
	w.settle(t)
	time.Sleep(outage)
	w.settle(t)
	c.link.set(fair, 0, 0)
}

func (w *world) clear(t *rapid.T) {
	late := rapid.Bool().Draw(t, "late events")
	t.Logf("          fair weather, late events: %v", late)
	for _, c := range w.clients {
		c.link.set(fair, 0, 0)
		c.link.unblock(late)
	}
}

// advance lets time pass: any, or to the moment at which a claim ends by what its
// client has been told, or to the last one before it.
func (w *world) advance(t *rapid.T) {
	d := time.Duration(rapid.SampledFrom([]int{1, 10, 100, 333, 1000, 3000, 9000}).Draw(t, "ms")) * time.Millisecond
	if len(w.handles) > 0 && rapid.Bool().Draw(t, "to an end") {
		h := w.handles[len(w.handles)-1-rapid.IntRange(0, len(w.handles)-1).Draw(t, "handle back")]
		before := time.Duration(rapid.IntRange(0, 1).Draw(t, "before"))
		for _, k := range h.client.link.of(h.token, h.mode) {
			if end := time.Until(k.last) - before; h.state == held && end > 0 {
				d = end
			}
		}
	}
	t.Logf("          %v later", d)
	time.Sleep(d)
}
