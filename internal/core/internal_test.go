package core

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
)

// rig is a client with its store, and a second process on the same locks.
type rig struct {
	t         *testing.T
	s         *memory.Store
	near, far *Client
}

func inBubble(t *testing.T, test func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		r := &rig{t: t, s: s}
		for _, c := range []**Client{&r.near, &r.far} {
			var err error
			*c, err = New(Config{
				Store: s.Peer(), Timeout: 3 * time.Second, MaxWaiters: 1000, Log: slog.New(slog.DiscardHandler),
				OnLost: func(*Handle) { assert.Fail(t, "told a loss that no caller had") },
			})
			require.NoError(t, err)
		}
		test(r)
		for _, c := range []*Client{r.near, r.far} {
			assert.NoError(t, c.Close())
			synctest.Wait()
			st := c.Stats()
			assert.Zero(t, st.Names)
			assert.Zero(t, st.Releases)
		}
	})
}

func lockConfig(ttl time.Duration) *LockConfig {
	cfg := &LockConfig{Config: request.Config{TTL: ttl, WaitTTL: ttl, Timeout: time.Second, Label: "test"}, Name: "m", Handoffs: 100}
	cfg.Prepare()
	return cfg
}

var usual = lockConfig(30 * time.Second)

// call returns a call of a new owner that was not begun.
func (r *rig) call(cfg *LockConfig, mode store.Mode) *Call {
	return &Call{Client: r.near, Config: cfg, Owner: NewPrivateOwner(), Mode: mode, Handle: new(Handle)}
}

// lock takes the lock at once.
func (r *rig) lock(a *Call) *Handle {
	r.t.Helper()
	require.NoError(r.t, a.Lock(r.t.Context()))
	return a.Handle
}

// begin has the call run on a goroutine of its own, and waits until it waits.
func (r *rig) begin(ctx context.Context, a *Call) (result <-chan error) {
	done := make(chan error, 1)
	go func() { done <- a.Lock(ctx) }()
	synctest.Wait()
	return done
}

// otherProcess holds the lock until unlock is called.
func (r *rig) otherProcess() (unlock func() error) {
	a := r.call(usual, store.Exclusive)
	a.Client = r.far
	return r.lock(a).Unlock
}

// joined returns a call that stands in the queue and has not asked yet.
func (r *rig) joined(a *Call) localqueue.State {
	r.t.Helper()
	require.NoError(r.t, a.begin(a.Client.shard(a.Config.Name), nil))
	return a.state()
}

// Fault 58: the process stops when the lock was passed to a call that waited, and
// Lock has only to return. The clock is read after that.
func TestFault58PauseBeforeAWaiterReturns(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.near.dog.Close()
		unlock := r.otherProcess()
		a := r.call(lockConfig(time.Second), store.Exclusive)
		require.Equal(t, localqueue.Asking, r.joined(a))
		require.NoError(t, a.ask(r.t.Context()))
		require.Equal(t, localqueue.Following, a.state())
		require.NoError(t, unlock())
		synctest.Wait()
		require.Equal(t, localqueue.Granted, a.state())
		time.Sleep(time.Second)
		assert.ErrorIs(t, a.deliver(), store.ErrLost)
		assert.Error(t, a.Handle.Err())
	})
}

// Fault 58 for a call whose first request was granted.
func TestFault58PauseBeforeTheFirstAnswerCounts(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.near.dog.Close()
		a := r.call(lockConfig(time.Second), store.Exclusive)
		require.Equal(t, localqueue.Asking, r.joined(a))
		a.name.shard.mu.Lock()
		p := a.newPlace("owner", "id", true)
		a.name.shard.mu.Unlock()
		answer := p.request.Send(r.t.Context())
		require.Equal(t, request.Granted, answer.Outcome)

		time.Sleep(time.Second)
		require.NoError(t, a.answered(r.t.Context(), p, answer))
		require.Equal(t, localqueue.Granted, a.state())
		assert.ErrorIs(t, a.deliver(), store.ErrLost)
		assert.Error(t, a.Handle.Err())
		synctest.Wait()
		st := r.near.Stats()
		st.Counters = Counters{}
		assert.Zero(t, st)
	})
}

// A call that joins the queue has begun to wait when others can see it there: its
// patience counts from then.
func TestWaitBeginsInTheQueue(t *testing.T) {
	inBubble(t, func(r *rig) {
		asks := r.call(usual, store.Shared)
		require.Equal(t, localqueue.Asking, r.joined(asks))
		follows, waits := r.call(usual, store.Shared), r.call(usual, store.Exclusive)
		require.Equal(t, localqueue.Following, r.joined(follows))
		require.Equal(t, localqueue.Waiting, r.joined(waits))
		assert.NotZero(t, follows.since)
		assert.NotZero(t, waits.since)
		for _, a := range []*Call{waits, follows, asks} {
			assert.ErrorIs(t, a.leave(r.t.Context(), context.Canceled), context.Canceled)
		}
	})
}

// A hold that no owner is given leaves no trouble of its renewal behind.
func TestHoldThatIsGivenUpHasNoTrouble(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.call(usual, store.Exclusive)
		require.Equal(t, localqueue.Asking, r.joined(a))
		p := a.newPlace("owner", "id", true)
		p.keep(request.Grant{Token: 1, At: time.Now(), Deadline: time.Now().Add(time.Minute)})
		r.near.renewals.mu.Lock()
		r.near.renewals.join(p, "down")
		r.near.renewals.mu.Unlock()
		assert.ErrorIs(t, a.leave(r.t.Context(), context.Canceled), context.Canceled)
		a.name.shard.mu.Lock()
		p.granted()
		a.name.shard.mu.Unlock()
		assert.Empty(t, r.near.renewals.causes)
	})
}

// A handle and its call, with a word of the public Hold and one of the allocator,
// fit the size class of 1,024 bytes. The next class costs a seventh more memory a lock.
func TestMemoryOfALock(t *testing.T) {
	assert.LessOrEqual(t, unsafe.Sizeof(Handle{})+unsafe.Sizeof(Call{}), uintptr(1024-8-8))
}

// The queue keeps the array of its actions. It does not keep the calls that they were about in memory.
func TestActionsAreForgotten(t *testing.T) {
	actions := []localqueue.Action{{Wake: &localqueue.Waiter{Value: new(Call)}}}
	new(nameState).carryOut(actions)
	assert.Equal(t, make([]localqueue.Action, 1), actions)
}
