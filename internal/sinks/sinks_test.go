package sinks_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock/internal/sinks"
	"github.com/dlock-go/dlock/store"
)

// TestFlood: more events than fit do not block who pushes them, and what did not
// fit is told as Event{}, after all that did.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sinks.New()
		var heard []store.Event
		s.Listen(func(e store.Event) { heard = append(heard, e) })
		const pushed = 5000
		for i := range pushed {
			s.Push(store.Event{ID: fmt.Sprint(i), Token: 1})
		}
		ctx, cancel := context.WithCancel(t.Context())
		go s.Deliver(ctx)
		synctest.Wait()
		cancel()
		zero := 0
		for _, e := range heard {
			if e == (store.Event{}) {
				zero++
			}
		}
		if zero != 1 || len(heard) < 1000 || len(heard) == pushed {
			t.Errorf("%d events, of them %d zero ones", len(heard), zero)
		}
	})
}

// TestBusySink: while a sink is busy others can push, listen and stop.
func TestBusySink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sinks.New()
		busy, done := make(chan struct{}), make(chan struct{})
		stop := s.Listen(func(store.Event) { close(busy); <-done })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Deliver(ctx)
		s.Push(store.Event{})
		<-busy
		s.Push(store.Event{ID: "1", Token: 1})
		stop()
		second := make(chan store.Event, 1)
		s.Listen(func(e store.Event) { second <- e })
		close(done)
		if e := <-second; e.ID != "1" {
			t.Errorf("got %v", e)
		}
	})
}

// TestClosed: nobody hears anything any more, nor do those who come later.
func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sinks.New()
		listen := func() { s.Listen(func(e store.Event) { t.Errorf("heard %v", e) }) }
		listen()
		s.Close()
		listen()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Deliver(ctx)
		s.Push(store.Event{ID: "1", Token: 1})
		synctest.Wait()
	})
}

// TestTell: an event that is told has been heard when Tell returns, beside those that are
// on their way to Deliver.
func TestTell(t *testing.T) {
	s := sinks.New()
	var heard []string
	s.Listen(func(e store.Event) { heard = append(heard, "a"+e.ID) })
	stop := s.Listen(func(e store.Event) { heard = append(heard, "b"+e.ID) })
	s.Push(store.Event{ID: "0"})
	s.Tell(store.Event{ID: "1"})
	stop()
	s.Tell(store.Event{ID: "2"})
	s.Close()
	s.Tell(store.Event{ID: "3"})
	if got, want := fmt.Sprint(heard), "[a1 b1 a2]"; got != want {
		t.Errorf("heard %v, want %v", got, want)
	}
}
