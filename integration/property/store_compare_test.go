package property

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/dlock-go/dlock/store"
)

// sameAnswer: no error where none is wanted, and the sentinel that is.
func sameAnswer(got, want error) bool {
	if want == nil {
		return got == nil
	}
	return errors.Is(got, want)
}

func describe(r store.Request) string {
	return fmt.Sprintf("%q %s %s %s TTL=%v WaitTTL=%v queue=%v tokens=%d", r.Name, r.ID[:6], r.Owner, r.Mode, r.TTL, r.WaitTTL, r.Queue, r.Tokens)
}

// compareGrant compares each field of a Grant for which the contract has a word.
func (b *bench) compareGrant(t *rapid.T, req store.Request, got store.Grant, err error, want verdict) {
	t.Helper()
	wrong := func(what string, value any, should any) {
		t.Helper()
		t.Fatalf("Acquire(%s) = %+v, %v\n %s is %v, want %v", describe(req), got, err, what, value, should)
	}
	if !sameAnswer(err, want.err) {
		wrong("the error", err, want.err)
	}
	n := b.model.names[req.Name]
	if err != nil && !errors.Is(err, store.ErrHeld) {
		return // certainly not, and nothing more to say
	}
	if got.Held != (want.held != nil) {
		wrong("Held", got.Held, want.held != nil)
	}
	if got.Held {
		if complaint := n.issued.is(want.held.token, got.Token); complaint != "" {
			wrong("Token", complaint, "else")
		}
		if remains := want.held.until.Sub(b.model.now); got.TTL > remains+b.slack || got.TTL < remains-b.slack {
			wrong("TTL", got.TTL, remains)
		}
		if got.Holds != want.holds {
			wrong("Holds", got.Holds, want.holds)
		}
		if got.Position != 0 {
			wrong("Position of a hold", got.Position, 0)
		}
		return
	}
	// Until what is in its way has run out, and a little more.
	const little = 50 * time.Millisecond
	if got.Retry < want.retry-b.slack || got.Retry > want.retry+b.slack+little || got.Retry <= 0 {
		wrong("Retry", got.Retry, fmt.Sprintf("%v and a little more", want.retry))
	}
	if err != nil {
		return
	}
	if complaint := n.issued.last(got.Token); complaint != "" {
		wrong("Token, the last one issued,", complaint, "else")
	}
	if got.Position != want.position {
		wrong("Position", got.Position, want.position)
	}
}

// accountForEvents: every promotion told the handle that its request came
// through, once, and nobody else was told anything.
func (b *bench) accountForEvents(t *rapid.T) {
	b.arrive()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.model.wakes {
		var told *wake
		for e := range b.events {
			if e.via == c.via && e.id == c.ID {
				told = &e
			}
		}
		if told == nil {
			t.Fatalf("%s was granted without an event through handle %d; events: %v", describe(c.Request), c.via, b.events)
		}
		if complaint := b.model.names[c.Name].issued.is(c.token, told.token); complaint != "" {
			t.Fatalf("event for %s: its token %d %s", describe(c.Request), told.token, complaint)
		}
		if b.events[*told]--; b.events[*told] == 0 {
			delete(b.events, *told)
		}
	}
	b.model.wakes = nil
	if len(b.events) > 0 {
		t.Fatalf("events of nothing: %v", slices.Collect(maps.Keys(b.events)))
	}
}

func (b *bench) inspect(t *rapid.T, name string) {
	b.model.now = time.Now()
	n := b.model.name(name)
	got, err := b.handles[0].Inspect(context.Background(), name)
	t.Logf("          Inspect %q: %d hold, %d wait", name, len(got.Holders), len(got.Queue))
	if err != nil || got.Name != name {
		t.Fatalf("Inspect(%q) is of %q, %v", name, got.Name, err)
	}
	b.compareEntries(t, n, "holders", got.Holders, n.holds)
	b.compareEntries(t, n, "queue", got.Queue, n.queue)
	if complaint := n.issued.last(got.Token); complaint != "" {
		t.Fatalf("Inspect(%q): the last token %d %s", name, got.Token, complaint)
	}
	b.accountForEvents(t)
}

func (b *bench) compareEntries(t *rapid.T, n *nameModel, what string, got []store.Entry, want []*claim) {
	same := slices.EqualFunc(got, want, func(e store.Entry, c *claim) bool {
		off := e.Remaining - c.until.Sub(b.model.now)
		return e.ID == store.Short(c.ID) && e.Owner == store.Short(c.Owner) &&
			e.Mode == c.Mode && e.Label == c.Label && off.Abs() <= b.slack
	})
	if !same {
		var list []string
		for _, c := range want {
			list = append(list, fmt.Sprintf("\n      %s for %v", describe(c.Request), c.until.Sub(b.model.now)))
		}
		t.Fatalf("Inspect: %s\n got  %+v\n want %v", what, got, list)
	}
	for i, e := range got {
		if want[i].token == nil {
			if e.Token != 0 {
				t.Fatalf("Inspect: a waiter has token %d", e.Token)
			}
			continue
		}
		if complaint := n.issued.is(want[i].token, e.Token); complaint != "" {
			t.Fatalf("Inspect: the token %d of %s %s", e.Token, describe(want[i].Request), complaint)
		}
	}
}
