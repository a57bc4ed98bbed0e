package faultstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/require"
)

func request(id string) store.Request {
	return store.Request{Name: "a", Owner: id, ID: id, TTL: 10 * time.Second, WaitTTL: 5 * time.Second, Queue: true, Tokens: 1}
}

func bounded(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Each fault has its effect on the store, on the caller and on the record.
func TestFaultsOfCalls(t *testing.T) {
	refused := errors.New("refused")
	for name, x := range map[string]struct {
		fault   faultstore.Fault
		err     error
		took    time.Duration
		applied int           // when the call returns
		later   time.Duration // when the request is checked again, from its sending
		finally int           // how often it has been applied by then
	}{
		"drop request":   {faultstore.DropRequest(), faultstore.ErrTransport, 0, 0, time.Second, 0},
		"drop reply":     {faultstore.DropReply(), faultstore.ErrTransport, 0, 1, time.Second, 1},
		"mute":           {faultstore.Mute(), context.DeadlineExceeded, 3 * time.Second, 0, 4 * time.Second, 0},
		"mute reply":     {faultstore.MuteReply(), context.DeadlineExceeded, 3 * time.Second, 1, 4 * time.Second, 1},
		"answer":         {faultstore.Answer(refused), refused, 0, 0, time.Second, 0},
		"answer after":   {faultstore.AnswerAfter(refused), refused, 0, 1, time.Second, 1},
		"delay request":  {faultstore.DelayRequest(time.Second), nil, time.Second, 1, 2 * time.Second, 1},
		"long request":   {faultstore.DelayRequest(5 * time.Second), context.DeadlineExceeded, 3 * time.Second, 0, 6 * time.Second, 1},
		"delay reply":    {faultstore.DelayReply(time.Second), nil, time.Second, 1, 2 * time.Second, 1},
		"long reply":     {faultstore.DelayReply(5 * time.Second), context.DeadlineExceeded, 3 * time.Second, 1, 6 * time.Second, 1},
		"pause before":   {faultstore.Pause(5*time.Second, 0), nil, 5 * time.Second, 1, 6 * time.Second, 1},
		"pause after":    {faultstore.Pause(0, 5*time.Second), nil, 5 * time.Second, 1, 6 * time.Second, 1},
		"duplicate":      {faultstore.Duplicate(), nil, 0, 2, time.Second, 2},
		"late duplicate": {faultstore.DuplicateAfter(time.Second), nil, 0, 1, 2 * time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := faultstore.New(memory.New())
				s.On(faultstore.Acquire, faultstore.Nth(1), x.fault)
				sent := time.Now()
				g, err := s.Acquire(bounded(t, 3*time.Second), request("1"))
				require.ErrorIs(t, err, x.err)
				require.Equal(t, x.took, time.Since(sent))
				require.Equal(t, err == nil, g.Held)
				call := s.Calls(faultstore.Acquire)[0]
				require.Equal(t, x.applied, call.Applied)
				require.Equal(t, []any{"1", 1, sent, time.Now()}, []any{call.ID(), call.N, call.Sent, call.Returned})

				time.Sleep(x.later - x.took)
				synctest.Wait()
				require.Equal(t, x.finally, s.Calls(faultstore.Any)[0].Applied)

				_, err = s.Acquire(t.Context(), request("2")) // the rule does not match
				require.NoError(t, err)
			})
		})
	}
}

func TestFaultsCompose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faultstore.New(memory.New())
		off := s.On(faultstore.Any, faultstore.Every, faultstore.DropReply(), faultstore.Duplicate())
		_, err := s.Acquire(t.Context(), request("1"))
		require.ErrorIs(t, err, faultstore.ErrTransport)
		require.Equal(t, []error{faultstore.ErrTransport}, s.Renew(t.Context(), []store.Ref{{Name: "a", ID: "1", TTL: time.Second}}))
		off()
		require.NoError(t, s.Release(t.Context(), store.Ref{Name: "a", ID: "1"}))
		var applied []int
		for _, c := range s.Calls(faultstore.Any) {
			applied = append(applied, c.Applied)
		}
		require.Equal(t, []int{2, 2, 1}, applied)
	})
}

// A fault inside another one ends with the caller's context, also for a request whose caller has
// gone.
func TestFaultsComposeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faultstore.New(memory.New())
		s.On(faultstore.Acquire, faultstore.Nth(1), faultstore.DelayRequest(5*time.Second), faultstore.MuteReply())
		s.On(faultstore.Acquire, faultstore.Nth(2), faultstore.Duplicate(), faultstore.Mute())
		for range 2 {
			_, err := s.Acquire(bounded(t, 3*time.Second), request("1"))
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		requests := s.Calls(faultstore.Acquire)
		require.Equal(t, []int{1, 0}, []int{requests[0].Applied, requests[1].Applied})
	})
}

func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faultstore.New(memory.New())
		go func() {
			for _, id := range []string{"1", "2", "3"} {
				time.Sleep(time.Second)
				_, _ = s.Acquire(t.Context(), request(id))
			}
		}()
		start := time.Now()
		s.Await(faultstore.Acquire, 2)
		require.Equal(t, 2*time.Second, time.Since(start))
		s.Await(faultstore.Any, 3)
		s.Await(faultstore.Acquire, 1) // it has arrived before
		require.Equal(t, 3*time.Second, time.Since(start))
		synctest.Wait()
	})
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faultstore.New(memory.New())
		events := make(chan store.Event, 10)
		stop := s.Listen(func(e store.Event) { events <- e })
		handOver := func(from, to string) {
			_, err := s.Acquire(t.Context(), request(to))
			require.NoError(t, err)
			require.NoError(t, s.Release(t.Context(), store.Ref{Name: "a", ID: from}))
			synctest.Wait()
		}
		_, err := s.Acquire(t.Context(), request("0"))
		require.NoError(t, err)

		handOver("0", "1")
		require.Equal(t, store.Event{ID: "1", Token: 2}, <-events)
		heal := s.Outage(faultstore.DelayRequest(0))
		handOver("1", "2")
		require.Empty(t, events)
		heal()
		off := s.OnEvent(faultstore.EveryEvent, faultstore.DelayEvent(time.Second))
		handOver("2", "3")
		require.Empty(t, events)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, "3", (<-events).ID)
		off()
		s.OnEvent(faultstore.NthEvent(4), faultstore.DuplicateEvent(3))
		handOver("3", "4")
		for range 3 {
			require.Equal(t, "4", (<-events).ID)
		}

		s.Emit(store.Event{})
		require.Equal(t, store.Event{}, <-events)
		stop()
		s.Emit(store.Event{})
		require.Empty(t, events)
	})
}

// A swapped handle gets no answers and no events of the old store.
func TestSwap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := memory.New()
		s := faultstore.New(old)
		s.Listen(func(e store.Event) { t.Errorf("%v arrived", e) })
		_, err := s.Acquire(t.Context(), request("1"))
		require.NoError(t, err)
		_, err = s.Acquire(t.Context(), request("2"))
		require.NoError(t, err)
		s.Swap(memory.New())
		require.NoError(t, old.Release(t.Context(), store.Ref{Name: "a", ID: "1"}))
		require.ErrorIs(t, s.Release(t.Context(), store.Ref{Name: "a", ID: "1"}), store.ErrLost)
		state, err := s.Inspect(t.Context(), "a")
		require.NoError(t, err)
		require.Empty(t, state.Holders)
	})
}

// A store with a fast clock grants the whole lease, and ends it early.
func TestSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faultstore.New(memory.New())
		s.Skew(1.25)
		s.On(faultstore.Acquire, faultstore.Every, faultstore.Duplicate())
		g, err := s.Acquire(t.Context(), request("1"))
		require.NoError(t, err)
		require.Equal(t, 10*time.Second, g.TTL)
		time.Sleep(8*time.Second - 1)
		ref := store.Ref{Name: "a", ID: "1", TTL: 10 * time.Second}
		require.Equal(t, []error{nil}, s.Renew(t.Context(), []store.Ref{ref}))
		time.Sleep(8 * time.Second)
		require.Equal(t, []error{store.ErrLost}, s.Renew(t.Context(), []store.Ref{ref}))
	})
}
