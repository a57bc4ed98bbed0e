package kv_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/kv"
)

const lease = locktest.Lease

// What tests of stores share, by short names.
var (
	request = locktest.LongRequest
	refOf   = locktest.RefTo
	hold    = locktest.Hold
	queue   = locktest.Queue
	certain = locktest.Certain
)

// hear collects the events of a handle.
func hear(s store.Store) (events func() []store.Event) {
	var mu sync.Mutex
	var list []store.Event
	s.Listen(func(e store.Event) {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, e)
	})
	return func() []store.Event {
		mu.Lock()
		defer mu.Unlock()
		got := list
		list = nil
		return got
	}
}

// TestFault121_EventsLeaveAfterTheCommit: a step that is rolled back tells no
// waiter of a grant. If its outcome is unknown, the waiter is told to ask again.
func TestFault121_EventsLeaveAfterTheCommit(t *testing.T) {
	for name, after := range map[string]bool{"rolled back": false, "committed, answer lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &backend{table: newTable()}
				s := open(t, notifying{b}, nil)
				peer := open(t, notifying{&backend{table: b.table}}, nil)
				events, heard := hear(s), hear(peer)
				holder, here, there := request("n", 1, false), request("n", 2, true), request("n", 3, true)
				hold(t, s, holder)
				here.Mode, there.Mode = store.Shared, store.Shared
				queue(t, s, here)
				queue(t, peer, there)
				fail := func() error { synctest.Wait(); return errCommit }
				if b.before = fail; after {
					b.before, b.after = nil, fail
				}
				if err := s.Release(t.Context(), refOf(holder)); err == nil || certain(err) {
					t.Fatalf("Release: got %v, want an unknown outcome", err)
				}
				synctest.Wait()
				b.before, b.after = nil, nil
				for who, got := range map[string][]store.Event{here.ID: events(), there.ID: heard()} {
					if len(got) != 1 || got[0] != (store.Event{ID: who}) {
						t.Errorf("got %+v, want one event with the id of %s alone", got, who)
					}
				}
				g, err := peer.Acquire(t.Context(), there)
				if err != nil || g.Held != after {
					t.Errorf("asked again: got %+v, %v, want held %v", g, err, after)
				}
			})
		})
	}
}

// TestFault122_StepRunsTwice: a step that is repeated has no effect outside the
// record.
func TestFault122_StepRunsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, notifying{&backend{table: newTable(), twice: true}}, nil)
		events := hear(s)
		holder, waiter := request("n", 1, false), request("n", 2, true)
		if g := hold(t, s, holder); g.Token != 1 || g.Holds != 1 {
			t.Errorf("got %+v, want token 1 and one hold", g)
		}
		queue(t, s, waiter)
		if errs := s.Renew(t.Context(), []store.Ref{refOf(holder), refOf(waiter)}); errs[0] != nil || !errors.Is(errs[1], store.ErrLost) {
			t.Errorf("Renew: got %v, want nil and ErrLost", errs)
		}
		if err := s.Release(t.Context(), refOf(holder)); err != nil {
			t.Errorf("Release: got %v", err)
		}
		if got := events(); len(got) != 1 || got[0] != (store.Event{ID: waiter.ID, Token: 2}) {
			t.Errorf("got %+v, want one event with token 2", got)
		}
	})
}

// TestFault02LostAnswer: repeating a request whose answer was lost gives the same hold,
// and repeating it after it was rolled back gives a new one.
func TestFault02LostAnswer(t *testing.T) {
	b := &backend{table: newTable()}
	s := open(t, b, nil)
	req := request("n", 1, false)
	b.before = func() error { return errCommit }
	_, err := s.Acquire(t.Context(), req)
	if !errors.Is(err, errCommit) || certain(err) {
		t.Errorf("rolled back: got %v, want the backend's error", err)
	}
	b.before, b.after = nil, func() error { return errCommit }
	if _, err := s.Acquire(t.Context(), req); err == nil || certain(err) {
		t.Errorf("answer lost: got %v, want an unknown outcome", err)
	}
	b.after = nil
	if g := hold(t, s, req); g.Token != 1 || g.Holds != 1 {
		t.Errorf("asked again: got %+v, want token 1 and one hold", g)
	}
}

// TestBackendErrors: no error of a backend looks like a refusal, except
// ErrRefused, which a backend may say.
func TestBackendErrors(t *testing.T) {
	b := &backend{table: newTable()}
	s := open(t, b, nil)
	req := request("n", 1, false)
	for _, sentinel := range []error{store.ErrHeld, store.ErrUpgrade, store.ErrLost, store.ErrForeignKey, store.ErrClosed, store.ErrRefused} {
		b.before = func() error { return fmt.Errorf("table: %w", sentinel) }
		_, acquired := s.Acquire(t.Context(), req)
		_, broken := s.Break(t.Context(), "n")
		_, inspected := s.Inspect(t.Context(), "n")
		for call, err := range map[string]error{
			"Acquire": acquired, "Break": broken, "Inspect": inspected,
			"Release": s.Release(t.Context(), refOf(req)), "Renew": s.Renew(t.Context(), []store.Ref{refOf(req)})[0],
		} {
			if err == nil || certain(err) != (sentinel == store.ErrRefused) || !strings.Contains(err.Error(), sentinel.Error()) {
				t.Errorf("%s, the backend says %v: got %v", call, sentinel, err)
			}
		}
	}
}

// TestStalledBackend: a call returns when its ctx ends, though the backend goes
// on. What it does later can be buried.
func TestStalledBackend(t *testing.T) {
	for name, deaf := range map[string]bool{"obeys ctx": false, "ignores ctx": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &backend{table: newTable(), deaf: deaf}
				s := open(t, b, nil)
				req := request("n", 1, false)
				b.lock <- struct{}{}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				if _, err := s.Acquire(ctx, req); !errors.Is(err, context.DeadlineExceeded) || certain(err) {
					t.Errorf("Acquire: got %v, want an unknown outcome", err)
				}
				if took := time.Since(start); took != time.Second {
					t.Errorf("returned after %v, want 1s", took)
				}
				<-b.lock
				synctest.Wait()
				ref := refOf(req)
				ref.Bury = true
				if err := s.Release(t.Context(), ref); deaf != (err == nil) {
					t.Errorf("bury: got %v", err)
				}
				if _, err := s.Acquire(t.Context(), req); !errors.Is(err, store.ErrLost) {
					t.Errorf("Acquire of a buried id: got %v, want ErrLost", err)
				}
			})
		})
	}
}

// slowNames is a backend whose Names ignores ctx and returns when the channel is closed.
type slowNames struct {
	*backend
	goOn chan struct{}
}

func (b slowNames) Names(context.Context) ([]string, error) {
	<-b.goOn
	return nil, nil
}

// TestStalledList: List returns when its ctx ends or the handle is closed, though the
// backend goes on.
func TestStalledList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := slowNames{&backend{table: newTable()}, make(chan struct{})}
		defer close(b.goOn)
		s := open(t, b, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := s.List(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("got %v after %v, want the end of the context after 1s", err, time.Since(start))
		}
		closed := make(chan error)
		go func() {
			_, err := s.List(t.Context())
			closed <- err
		}()
		synctest.Wait()
		s.Close()
		if err := <-closed; err == nil || certain(err) {
			t.Errorf("closed during the call: got %v, want an unknown outcome", err)
		}
	})
}

// TestClose: calls after Close get ErrClosed, and one under way gets an unknown
// outcome.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backend{table: newTable()}
		s := open(t, b, nil)
		b.lock <- struct{}{}
		underWay := make(chan error)
		go func() {
			_, err := s.Acquire(t.Context(), request("n", 1, false))
			underWay <- err
		}()
		synctest.Wait()
		for range 2 {
			if err := s.Close(); err != nil {
				t.Errorf("Close: got %v", err)
			}
		}
		if err := <-underWay; err == nil || certain(err) {
			t.Errorf("under way: got %v, want an unknown outcome", err)
		}
		_, acquired := s.Acquire(t.Context(), request("n", 1, true))
		_, inspected := s.Inspect(t.Context(), "n")
		_, broken := s.Break(t.Context(), "n")
		_, listed := s.List(t.Context())
		for call, err := range map[string]error{
			"Acquire": acquired, "Inspect": inspected, "Break": broken, "List": listed,
			"Release": s.Release(t.Context(), store.Ref{}), "Renew": s.Renew(t.Context(), []store.Ref{{}})[0],
		} {
			if !errors.Is(err, store.ErrClosed) {
				t.Errorf("%s: got %v, want ErrClosed", call, err)
			}
		}
		<-b.lock
	})
}

// TestFault44LostMessages: a message that may have been lost makes every waiter ask.
func TestFault44LostMessages(t *testing.T) {
	b := &backend{table: newTable()}
	s := open(t, notifying{b}, nil)
	events := hear(s)
	for _, msg := range []string{"", "an-id\n", "an-id 1\n", " 1 2\n", "an-id one 2\n", "an-id 1 two\n"} {
		for _, got := range b.receivers {
			if msg == "" {
				got(nil)
			} else {
				got([]byte(msg))
			}
		}
		if got := events(); len(got) != 1 || got[0] != (store.Event{}) {
			t.Errorf("%q: got %+v, want one zero event", msg, got)
		}
	}
	for _, got := range b.receivers {
		got([]byte("one 1 2\ntwo 3 4\n"))
	}
	if got := events(); len(got) != 2 || got[1] != (store.Event{ID: "two", Token: 3, Short: 4}) {
		t.Errorf("got %+v, want two events", got)
	}
}

// sizes is a notifier that notes how long its messages are.
type sizes struct {
	notifying
	longest, count int
}

func (z *sizes) Send(handle string, msg []byte) {
	z.longest, z.count = max(z.longest, len(msg)), z.count+1
	z.notifying.Send(handle, msg)
}

// TestManyEvents: the events of one step are sent in few messages of bounded
// size.
func TestManyEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &sizes{notifying: notifying{&backend{table: newTable()}}}
		s, peer := open(t, z, nil), open(t, z, nil)
		events := hear(peer)
		holder := request("n", 0, false)
		hold(t, s, holder)
		for n := 1; n <= 500; n++ {
			req := request("n", n, true)
			req.Mode = store.Shared
			queue(t, peer, req)
		}
		s.Release(t.Context(), refOf(holder))
		synctest.Wait()
		if got := events(); len(got) != 500 || z.longest > 4096 || z.count > 10 {
			t.Errorf("%d events in %d messages of at most %d bytes", len(got), z.count, z.longest)
		}
	})
}

// TestNothingIsLeft: names that were released leave no value, and those of
// clients that died are bounded by what is in use.
func TestNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backend{table: newTable()}
		s := open(t, b, nil)
		for n := range 100 {
			req := request(fmt.Sprintf("released-%d", n), n, false)
			hold(t, s, req)
			s.Release(t.Context(), refOf(req))
		}
		if len(b.values) > 0 {
			t.Errorf("%d values of released locks", len(b.values))
		}
		if n := hundredLive(t, s, b.table); n > 300 {
			t.Errorf("%d values, a hundred of them alive", n)
		}
	})
}

func TestOptions(t *testing.T) {
	if _, err := kv.New(nil, nil); err == nil {
		t.Error("no backend: got no error")
	}
	b := &backend{table: newTable()}
	for _, o := range []kv.Options{{MinTTL: -1}, {Batch: -1}, {Poll: -1}, {MaxPoll: -1}} {
		if _, err := kv.New(b, &o); err == nil {
			t.Errorf("%+v: got no error", o)
		}
	}
	if s := open(t, b, &kv.Options{MinTTL: time.Minute}); s.MinTTL() != time.Minute {
		t.Errorf("MinTTL is %v", s.MinTTL())
	}
	if s := open(t, b, nil); s.MinTTL() != 50*time.Millisecond {
		t.Errorf("by default MinTTL is %v", s.MinTTL())
	}
}
