package core

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Another call of a reader that asked for all may be under way to the store when the
// reader has unlocked. It must not ask by the identity under which the others read on:
// the store would take it for an upgrade.
func TestReaderThatLeavesHasAnotherIdentity(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.call(usual, store.Shared)
		first := r.lock(a)
		call := r.call(usual, store.Shared) // of the same owner
		call.Owner = a.Owner
		s, sh := first.turn.place, first.shard()
		sh.mu.Lock()
		call.enter(sh)
		require.Same(t, a.owner, call.owner)
		id := call.owner.identity.id
		assert.Equal(t, s.request.Ref().Owner, id)
		sh.mu.Unlock()

		second := r.lock(r.call(usual, store.Shared))
		require.Same(t, s, second.turn.place)
		require.NoError(t, first.Unlock())
		sh.mu.Lock()
		other := call.owner.known("other")
		assert.NotEqual(t, id, other.id)
		assert.Zero(t, other.requests)
		sh.mu.Unlock()
		require.NoError(t, second.Unlock())

		sh.mu.Lock()
		call.owner.leave()
		sh.mu.Unlock()
	})
}

// The last reader that leaves keeps the identity: the hold is given back under it.
func TestReaderThatIsLastKeepsTheIdentity(t *testing.T) {
	inBubble(t, func(r *rig) {
		h := r.lock(r.call(usual, store.Shared))
		o, id := h.turn.owner, h.turn.owner.identity.id
		require.NoError(t, h.Unlock())
		assert.Equal(t, id, o.identity.id)
		assert.Equal(t, id, h.turn.place.request.Ref().Owner)
	})
}

// A reader that gives up leaves its place to the readers that follow it, and the
// identity with it.
func TestReaderThatGivesUpHasAnotherIdentity(t *testing.T) {
	inBubble(t, func(r *rig) {
		unlock := r.otherProcess()
		ctx, cancel := context.WithCancel(r.t.Context())
		a, b := r.call(usual, store.Shared), r.call(usual, store.Shared)
		first := r.begin(ctx, a)
		second := r.begin(r.t.Context(), b)
		sh := a.name.shard
		sh.mu.Lock()
		p := a.waiter.Place.Value.(*place)
		id := p.identity.id
		assert.Same(t, a.waiter.Place, b.waiter.Place)
		a.owner.refs++ // another call of it
		sh.mu.Unlock()

		cancel()
		require.ErrorIs(t, <-first, context.Canceled)
		sh.mu.Lock()
		assert.NotEqual(t, id, a.owner.known("other").id)
		a.owner.leave()
		sh.mu.Unlock()
		require.NoError(t, unlock())
		require.NoError(t, <-second)
		assert.Equal(t, id, b.Handle.turn.place.request.Ref().Owner)
		assert.Same(t, p, b.Handle.turn.place)
		require.NoError(t, b.Handle.Unlock())
	})
}

// A call that is about to ask for its owner, by which others read meanwhile, enters what
// the owner holds. To ask the store would be an upgrade.
func TestReaderEntersWhatItsOwnerShares(t *testing.T) {
	inBubble(t, func(r *rig) {
		short := lockConfig(time.Minute)
		a := r.call(usual, store.Shared)
		require.Equal(t, localqueue.Asking, r.joined(a))
		b := r.call(short, store.Shared)
		b.Owner = a.Owner
		own := r.lock(b)
		beside := r.lock(r.call(short, store.Shared))
		require.Same(t, own.turn.place, beside.turn.place)

		require.Equal(t, localqueue.Restarting, a.state())
		require.NoError(t, a.ask(t.Context()), "it does not ask")
		require.Equal(t, localqueue.Restarting, a.state())
		require.NoError(t, a.begin(a.name.shard, nil))
		require.Equal(t, localqueue.Granted, a.state())
		require.NoError(t, a.deliver())
		require.Same(t, own.turn, a.Handle.turn)
		assert.Equal(t, 2, own.Count())
		for _, h := range []*Handle{a.Handle, own, beside} {
			require.NoError(t, h.Unlock())
		}
	})
}

// A call that begins again, for its owner reads meanwhile, has waited since it first began.
func TestCallThatBeginsAgainHasWaited(t *testing.T) {
	inBubble(t, func(r *rig) {
		unlock := r.otherProcess()
		reads, writes := r.call(usual, store.Shared), r.call(usual, store.Exclusive)
		writes.Owner = reads.Owner
		first, second := r.begin(r.t.Context(), reads), r.begin(r.t.Context(), writes)
		time.Sleep(time.Second)
		require.NoError(t, unlock())
		require.NoError(t, <-first)
		require.NoError(t, <-second)
		assert.EqualValues(t, 2, reads.Client.waits.Load())
		assert.Equal(t, 2*time.Second, time.Duration(reads.Client.waitTime.Load()).Round(time.Second/10))
		require.NoError(t, writes.Handle.Unlock())
		require.NoError(t, reads.Handle.Unlock())
	})
}

// Readers that rely on a place in the background have no other place, and readers of
// another lease do not rely on it. Each of them is granted.
func TestReadersRelyOnOnePlace(t *testing.T) {
	inBubble(t, func(r *rig) {
		unlock := r.otherProcess()
		ctx, cancel := context.WithCancel(r.t.Context())
		long := lockConfig(time.Minute)
		calls := []*Call{r.call(usual, store.Shared), r.call(usual, store.Shared), r.call(long, store.Shared), r.call(long, store.Shared)}
		gone := r.begin(ctx, calls[0])
		waiting := []<-chan error{r.begin(r.t.Context(), calls[1])}
		sh := calls[0].name.shard
		sh.mu.Lock()
		p := calls[0].waiter.Place
		sh.mu.Unlock()
		cancel()
		require.Error(t, <-gone)
		for _, a := range calls[2:] {
			waiting = append(waiting, r.begin(r.t.Context(), a))
		}
		sh.mu.Lock()
		assert.Same(t, p, calls[1].waiter.Place)
		assert.Equal(t, localqueue.Background, p.Phase)
		assert.Same(t, &calls[1].waiter, calls[1].name.queue.FirstOn(p))
		for _, a := range calls[2:] {
			assert.NotSame(t, p, a.waiter.Place)
			assert.NotEqual(t, localqueue.Gone, a.waiter.Place.Phase)
		}
		sh.mu.Unlock()
		require.NoError(t, unlock())
		for i, err := range waiting {
			require.NoError(t, <-err)
			require.NoError(t, calls[1+i].Handle.Unlock())
		}
		synctest.Wait()
		state, err := r.s.Inspect(r.t.Context(), "m")
		require.NoError(t, err)
		assert.Empty(t, state.Holders)
		assert.Empty(t, state.Queue)
	})
}
