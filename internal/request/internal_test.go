package request

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is done is not kept: neither while there is more to do, nor by the list after it.
func TestReleaserKeepsNothing(t *testing.T) {
	d := NewSender(memory.New(), slog.New(slog.DiscardHandler).Warn)
	k := &d.releaser
	k.first.workers = k.first.max // nobody works
	for range 3 {
		r := new(Request)
		r.Init(d, new(Config), store.Request{Name: "m", ID: "id"})
		k.add(r, true)
	}
	list := k.first.list
	_, ok := k.take(&k.first)
	assert.True(t, ok)
	assert.Nil(t, list[0].request)
	assert.NotNil(t, list[1].request)
	k.take(&k.first)
	k.take(&k.first)
	assert.Nil(t, k.first.list)
	assert.Equal(t, 3, d.PendingReleases())
	d.StopAcquires()
}

// A request that its timer refuses before it is entered gets no events afterwards.
func TestRefusedBeforeItListens(t *testing.T) {
	d := NewSender(memory.New(), slog.New(slog.DiscardHandler).Warn)
	r := new(Request)
	r.Init(d, &Config{TTL: time.Second, WaitTTL: time.Second, Timeout: time.Second}, store.Request{Name: "m", ID: "id", Owner: "owner", Queue: true, Tokens: 1})
	var got Answer
	r.poll = &polling{then: func(a Answer) { got = a }, timer: time.NewTimer(time.Hour)}
	r.mu.Lock()
	r.finish(Answer{Outcome: Refused, Err: ErrUnavailable})
	r.listen()
	r.Abandon()
	assert.Equal(t, Refused, got.Outcome)
	assert.Zero(t, d.Listening())
	d.StopAcquires()
}

// firesAgain is a store during whose second call the timer fires, as if the answer had come.
type firesAgain struct {
	store.Store
	request *Request
	calls   int
}

func (s *firesAgain) Acquire(context.Context, store.Request) (store.Grant, error) {
	if s.calls++; s.calls == 2 {
		s.request.mu.Lock()
		s.request.inFlight = false
		s.request.mu.Unlock()
		s.request.onTimer()
	}
	return store.Grant{Retry: time.Minute}, nil
}

// The timer may fire twice at once, for the plan and for an event. The second firing asks
// nothing, also if it comes between the answer and what is planned after it.
func TestTimerFiresTwice(t *testing.T) {
	s := &firesAgain{Store: memory.New(), request: new(Request)}
	d, r := NewSender(s, slog.New(slog.DiscardHandler).Warn), s.request
	r.Init(d, &Config{TTL: time.Hour, WaitTTL: time.Hour, Timeout: time.Minute}, store.Request{Name: "m", ID: "id", Owner: "owner", Queue: true, Tokens: 1})
	r.Poll(r.Send(t.Context()), func(Answer) {})
	r.mu.Lock()
	r.poll.next = time.Now()
	r.mu.Unlock()
	r.onTimer()
	assert.Equal(t, 2, s.calls)
	r.Abandon()
	d.StopAcquires()
}

// A request is abandoned while its next call begins, and then the client closes: what an
// earlier call has left at the store is released all the same.
func TestAbandonedAsTheClientCloses(t *testing.T) {
	abandonedBeforeSent(t, (*Sender).StopAcquires)
}

// One that is abandoned between its timer and its sending is not sent.
func TestAbandonedAfterItsTimer(t *testing.T) {
	abandonedBeforeSent(t, func(*Sender) {})
}

func abandonedBeforeSent(t *testing.T, then func(*Sender)) {
	s := &asks{Store: memory.New()}
	other := store.Request{Name: "m", ID: "other", Owner: "other", TTL: time.Minute, WaitTTL: time.Minute, Tokens: 1}
	_, err := s.Acquire(t.Context(), other)
	assert.NoError(t, err)
	d := NewSender(s, slog.New(slog.DiscardHandler).Warn)
	r := new(Request)
	r.Init(d, &Config{TTL: time.Minute, WaitTTL: time.Minute, Timeout: time.Minute}, store.Request{Name: "m", ID: "id", Owner: "owner", Queue: true, Tokens: 1})
	r.Poll(r.Send(t.Context()), func(Answer) {})
	r.Abandon()
	then(d)
	before := s.n.Load()
	assert.Equal(t, Refused, r.send(t.Context(), time.Now(), time.Minute).Outcome)
	assert.Equal(t, before, s.n.Load(), "it was sent")
	assert.Eventually(t, func() bool {
		state, err := s.Inspect(t.Context(), "m")
		return err == nil && len(state.Queue) == 0
	}, 10*time.Second, time.Millisecond)
}

// asks counts the calls of Acquire.
type asks struct {
	store.Store
	n atomic.Int64
}

func (s *asks) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	s.n.Add(1)
	return s.Store.Acquire(ctx, req)
}

// contradictory is a store whose answers are certain, and wrap the error of a context too: a client
// library ends its own contexts when it is closed.
type contradictory struct {
	store.Store
	refusal error
}

func (s contradictory) err() error {
	return fmt.Errorf("%w: connection: %w", s.refusal, context.Canceled)
}

func (s contradictory) Acquire(context.Context, store.Request) (store.Grant, error) {
	return store.Grant{}, s.err()
}

func (s contradictory) Release(context.Context, store.Ref) error { return s.err() }

// A certain answer stays certain whatever else its error wraps. The context's error, which is not
// the caller's, does not get out.
func TestCertainErrorThatWrapsAContextsError(t *testing.T) {
	for _, refusal := range []error{
		store.ErrHeld, store.ErrUpgrade, store.ErrLost, store.ErrForeignKey, store.ErrRefused, store.ErrClosed,
	} {
		t.Run(refusal.Error(), func(t *testing.T) {
			s := contradictory{memory.New(), refusal}
			d := NewSender(s, slog.New(slog.DiscardHandler).Warn)
			defer d.StopAcquires()
			r := new(Request)
			r.Init(d, &Config{TTL: time.Minute, WaitTTL: time.Minute, Timeout: time.Minute}, store.Request{Name: "m", ID: "id", Owner: "owner", Queue: true, Tokens: 1})
			answer := r.Send(t.Context())
			looked := d.AskStore(t.Context(), time.Minute, func(context.Context) error { return s.err() })
			released := d.release(r.Ref(), time.Now(), time.Minute)
			assert.Equal(t, Refused, answer.Outcome)
			for _, err := range []error{answer.Err, looked, released} {
				assert.ErrorIs(t, err, refusal)
				assert.NotErrorIs(t, err, context.Canceled)
				assert.Equal(t, s.err().Error(), err.Error())
			}
		})
	}
}

func TestCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Counter
		began := time.Now()
		assert.True(t, c.Wait(began), "nothing is under way")
		c.Add()
		c.Add()
		assert.Equal(t, 2, c.Load())
		assert.False(t, c.Wait(began.Add(time.Second)))
		assert.Equal(t, time.Second, time.Since(began))
		assert.False(t, c.Wait(began), "the deadline has passed")
		go func() {
			c.Done()
			time.Sleep(time.Second)
			c.Add()
			c.Done()
			time.Sleep(time.Second)
			c.Done()
		}()
		assert.True(t, c.Wait(began.Add(time.Hour)))
		assert.Equal(t, 3*time.Second, time.Since(began))
		assert.Zero(t, c.Load())
	})
}

// Pauses double from 5 ms up to the limit, less a half at most.
func TestBackoff(t *testing.T) {
	for range 100 {
		b := Backoff{Limit: 100 * time.Millisecond}
		for _, most := range []time.Duration{5, 10, 20, 40, 80, 100, 100} {
			got := b.Next()
			assert.LessOrEqual(t, got, most*time.Millisecond)
			assert.GreaterOrEqual(t, got, most*time.Millisecond/2)
		}
		b.Reset()
		assert.LessOrEqual(t, b.Next(), 5*time.Millisecond)
		none := Backoff{}
		assert.LessOrEqual(t, none.Next(), time.Millisecond)
		assert.Positive(t, none.Next())
	}
}

func TestBackoffSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{Limit: time.Second}
		began := time.Now()
		assert.True(t, b.Sleep(make(chan struct{})))
		assert.GreaterOrEqual(t, time.Since(began), 2500*time.Microsecond)
		done := make(chan struct{})
		close(done)
		began = time.Now()
		assert.False(t, b.Sleep(done))
		assert.Zero(t, time.Since(began))
	})
}

// Calls that begin shortly after one another share a deadline. It is freed when a later call has another and
// its own calls are over, so that calls with many timeouts leave no timers behind.
func TestCallsShareADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, stop := context.WithCancel(t.Context())
		defer stop()
		d, b := new(Sender), &bound{Context: base}
		begin := func(timeout time.Duration) *callContext {
			c := call(context.Background(), b, time.Now(), timeout)
			c.Done()
			return c
		}
		first := begin(32 * time.Second)
		time.Sleep(time.Second - 1)
		second := begin(32 * time.Second)
		require.Equal(t, first.merged, second.merged, "the second call shares the deadline of the first")
		time.Sleep(time.Nanosecond)
		third := begin(32 * time.Second)
		require.NotEqual(t, first.merged, third.merged, "that would end too early for the third")
		_ = first.end(d, nil)
		require.NoError(t, second.Err())
		_ = second.end(d, nil)
		require.ErrorIs(t, second.merged.Err(), context.Canceled, "freed")
		require.NoError(t, third.Err())
		_ = third.end(d, nil)

		late := call(context.Background(), b, time.Now(), time.Minute)
		_ = late.end(d, nil)
		late.Done()
		require.EqualValues(t, 1, b.latest.Load().users.Load(), "one that looks after its end does not use it")
	})
}

// waits returns a request that asks again in a minute, and its store.
func waits(t *testing.T, then func(Answer)) (*Request, *asks) {
	s, r := &asks{Store: memory.New()}, new(Request)
	d := NewSender(s, slog.New(slog.DiscardHandler).Warn)
	t.Cleanup(d.StopAcquires)
	r.Init(d, &Config{TTL: time.Hour, WaitTTL: time.Hour, Timeout: time.Minute}, store.Request{Name: "m", ID: "id", Owner: "owner", Queue: true, Tokens: 1})
	r.Poll(Answer{Outcome: Queued, Retry: time.Minute}, then)
	return r, s
}

// A firing of the timer that comes before the planned moment, as the timer was set again meanwhile, asks nothing.
func TestFiringBeforeThePlannedMoment(t *testing.T) {
	r, s := waits(t, func(Answer) {})
	r.onTimer()
	assert.Zero(t, r.Standing())
	assert.Zero(t, s.n.Load(), "it was sent")
	r.Abandon()
}

// An event that was on its way when its request was abandoned changes nothing.
func TestEventAfterTheEnd(t *testing.T) {
	told := 0
	r, s := waits(t, func(Answer) { told++ })
	r.Abandon()
	r.onEvent(store.Event{ID: r.ID(), Token: 9})
	assert.Zero(t, r.Standing())
	assert.Zero(t, told)
	assert.Equal(t, abandoned, r.phase)
	assert.Zero(t, r.poll.wish, "it wishes to be sent")
	assert.Zero(t, s.n.Load())
}

// An event that was on its way when its request was granted by another one tells nothing more.
func TestEventAfterTheGrant(t *testing.T) {
	told := 0
	r, _ := waits(t, func(Answer) { told++ })
	r.onEvent(store.Event{ID: r.ID(), Token: 9})
	r.onEvent(store.Event{ID: r.ID(), Token: 10})
	assert.Equal(t, 1, told)
	r.Abandon()
}

// A deadline that its last user has left has ended, and takes no other user.
func TestFreedDeadlineTakesNoUser(t *testing.T) {
	freed := false
	d := &deadline{free: func() { freed = true }}
	d.users.Store(1)
	assert.True(t, d.join())
	d.leave()
	assert.False(t, freed)
	d.leave()
	assert.True(t, freed)
	assert.False(t, d.join())
}

// Calls that begin at one moment share a deadline, and leave it when they end, also if their callers may cancel.
func TestCallsLeaveTheirDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bound{Context: t.Context()}
		begin := func() *callContext {
			c := call(t.Context(), b, time.Now(), time.Minute)
			assert.NotNil(t, c.Done())
			return c
		}
		users := func() int { return int(b.latest.Load().users.Load()) }
		one, other := begin(), begin()
		assert.Equal(t, 3, users(), "two calls and the bound")
		for i, c := range []*callContext{one, other} {
			assert.NoError(t, c.end(new(Sender), nil))
			assert.Equal(t, 2-i, users())
			assert.ErrorIs(t, c.Err(), context.Canceled)
		}
	})
}
