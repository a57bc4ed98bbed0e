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

// Each condition that keeps a hold from passing on to the next writer here: owners
// that the store takes for one, a lease that has run out unseen, a batch without end.
func TestSuccessor(t *testing.T) {
	other := lockConfig(time.Minute)
	for what, spoil := range map[string]func(s *place, next *Call){
		"span used up":                         func(s *place, _ *Call) { s.spare = 0 },
		"batch over":                           func(s *place, _ *Call) { s.began = s.began.Add(-handoverWindow) },
		"another request under the identity":   func(s *place, _ *Call) { s.identity.requests++ },
		"another identity of the next owner":   func(_ *place, a *Call) { a.owner.identity = new(identity) },
		"lease run out, and no call has noted": func(s *place, _ *Call) { s.lease.Disarm() },
		"client closing":                       func(s *place, _ *Call) { s.name.client.isClosing.Store(true) },
		"granted again by the store":           func(s *place, _ *Call) { s.name.granted = append(s.name.granted, s) },
		"another owner has it too":             func(s *place, _ *Call) { s.owners = append(s.owners, s.owners[0]) },
		"another lease":                        func(s *place, _ *Call) { s.config = other },
		"the next writer has left":             func(s *place, a *Call) { s.name.queue.Take(&a.waiter, localqueue.Restarting) },
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.near.config.OnLost = nil // a lease that is disarmed counts as a loss
				before := r.lock(r.call(usual, store.Exclusive))
				calls := []*Call{r.call(usual, store.Exclusive), r.call(usual, store.Exclusive)}
				first, second := r.begin(r.t.Context(), calls[0]), r.begin(r.t.Context(), calls[1])
				time.Sleep(2 * handoverWindow) // the batch before is over
				require.NoError(t, before.Unlock())
				require.NoError(t, <-first)
				synctest.Wait()

				h, next := calls[0].Handle, calls[1]
				s, sh := h.turn.place, h.shard()
				sh.mu.Lock()
				n, spare, began, config, owners := s.name, s.spare, s.began, s.config, s.owners
				assert.Same(t, next, s.successor())
				spoil(s, next)
				assert.Nil(t, s.successor(), what)
				s.spare, s.began, s.config, s.owners = spare, began, config, owners
				s.identity.requests, n.granted = 1, n.granted[:1]
				r.near.isClosing.Store(false)
				if next.waiter.Place == nil { // it goes past the queue now
					next.wake()
				} else {
					next.owner.identity = nil
				}
				sh.mu.Unlock()
				_ = h.Unlock() // its lease may be disarmed, which counts as a loss
				require.NoError(t, <-second)
				require.NoError(t, next.Handle.Unlock())
			})
		})
	}
}

// Each condition that keeps a reader from joining the hold of other readers.
func TestMayJoin(t *testing.T) {
	fixed := lockConfig(usual.TTL)
	fixed.Fixed = true
	fixed.Prepare()
	for what, spoil := range map[string]func(s *place, a *Call){
		"span used up":                         func(s *place, _ *Call) { s.spare = 0 },
		"batch over":                           func(s *place, _ *Call) { s.began = s.began.Add(-handoverWindow) },
		"another request under the identity":   func(s *place, _ *Call) { s.identity.requests++ },
		"another identity of the reader":       func(_ *place, a *Call) { a.owner.identity = new(identity) },
		"another call of the reader":           func(_ *place, a *Call) { a.owner.refs++ },
		"lease run out, and no call has noted": func(s *place, _ *Call) { s.lease.Disarm() },
		"client closing":                       func(s *place, _ *Call) { s.name.client.isClosing.Store(true) },
		"no owner has it any more":             func(s *place, _ *Call) { s.owners = nil },
		"another lease":                        func(_ *place, a *Call) { a.Config = lockConfig(time.Minute) },
		"a lease that is not renewed":          func(_ *place, a *Call) { a.Config = fixed },
		"a writer waits": func(_ *place, a *Call) {
			a.waiter.Kind = &a.Config.kind
			a.name.queue.Join(&a.waiter)
		},
		"two leases that are not renewed alike": func(s *place, a *Call) { a.Config, s.config = fixed, fixed },
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.near.config.OnLost = nil // a lease that is disarmed counts as a loss
				h := r.lock(r.call(usual, store.Shared))
				s, sh := h.turn.place, h.shard()
				a := r.call(usual, store.Shared)
				sh.mu.Lock()
				a.enter(sh)
				require.True(t, s.mayJoin(a))
				assert.False(t, (*place)(nil).mayJoin(a))
				spare, began, owners, config := s.spare, s.began, s.owners, s.config
				spoil(s, a)
				assert.False(t, s.mayJoin(a), what)
				s.spare, s.began, s.owners, s.config = spare, began, owners, config
				s.identity.requests = 1
				r.near.isClosing.Store(false)
				if a.waiter.Place != nil {
					a.name.queue.Take(&a.waiter, localqueue.Idle)
				}
				a.owner.refs, a.owner.identity = 1, nil
				a.owner.leave()
				sh.mu.Unlock()
				_ = h.Unlock()
			})
		})
	}
}

// What was granted to an identity that was asked for more than once may be a
// re-entry, and the tokens after that another owner's.
func TestHoldOfAnIdentityAskedForTwice(t *testing.T) {
	s := &place{identity: &identity{requests: 1}, spare: 5, issued: 3, token: 3}
	s.buildOn(&ownerState{storeToken: 3, ownToken: 4})
	assert.Equal(t, 5, s.spare)
	assert.Equal(t, uint64(4), s.token, "the token that the owner was given")
	s.identity.requests = 2
	s.buildOn(&ownerState{storeToken: 9, ownToken: 9})
	assert.Equal(t, uint64(4), s.token)
	n := new(nameState)
	s.serve(&Call{Handle: new(Handle), name: n, owner: &ownerState{name: n}})
	assert.Zero(t, s.spare)
	assert.Equal(t, uint64(4), s.token)
}

// A call asks for an owner that holds the lock in the other mode. Before the request is sent, the
// lock passes on to another owner. The store must not take the request for a re-entry.
func TestOwnerThatPassedItsLockOnAsksByAnotherIdentity(t *testing.T) {
	inBubble(t, func(r *rig) {
		before := r.lock(r.call(usual, store.Exclusive))
		first, next := r.call(usual, store.Exclusive), r.call(usual, store.Exclusive)
		got, passed := r.begin(r.t.Context(), first), r.begin(r.t.Context(), next)
		require.NoError(t, before.Unlock())
		require.NoError(t, <-got)
		read := r.call(usual, store.Shared)
		read.Owner = first.Owner
		require.Equal(t, localqueue.Asking, r.joined(read))
		require.NoError(t, first.Handle.Unlock())
		require.NoError(t, <-passed)
		require.Same(t, first.Handle.turn.place, next.Handle.turn.place)

		require.NoError(t, read.ask(r.t.Context()))
		assert.Equal(t, localqueue.Following, read.state(), "a reader beside a writer")
		assert.ErrorIs(t, read.leave(r.t.Context(), context.Canceled), context.Canceled)
		require.NoError(t, next.Handle.Unlock())
	})
}

// No hold is passed to a call whose goroutine is sending a request: it would stand idle until the
// store has answered.
func TestCallThatAsksIsNotHandedTheLock(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.call(usual, store.Exclusive)
		require.Equal(t, localqueue.Asking, r.joined(a))
		sh := a.name.shard
		sh.mu.Lock()
		assert.Same(t, &a.waiter, a.name.queue.Servable(&usual.kind), "nothing was sent")
		a.newPlace("owner", "id", true)
		assert.Nil(t, a.name.queue.Servable(&usual.kind))
		sh.mu.Unlock()
		assert.ErrorIs(t, a.leave(r.t.Context(), context.Canceled), context.Canceled)
	})
}

// When an owner gets the lock by one call, its other calls that wait re-enter, also those that have
// a place of their own at the store. The place is given up.
func TestOtherCallsOfAnOwnerReenter(t *testing.T) {
	for name, owner := range map[string]Owner{"explicit": NewOwner(), "private": NewPrivateOwner()} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				unlock := r.otherProcess()
				calls := []*Call{r.call(usual, store.Exclusive), r.call(usual, store.Exclusive)}
				var waiting []<-chan error
				for _, a := range calls {
					a.Owner = owner
					waiting = append(waiting, r.begin(r.t.Context(), a))
				}
				require.NoError(t, unlock())
				for _, err := range waiting {
					require.NoError(t, <-err)
				}
				synctest.Wait()
				assert.Equal(t, 2, calls[0].Handle.Count())
				state, err := r.s.Inspect(r.t.Context(), "m")
				require.NoError(t, err)
				assert.Len(t, state.Holders, 1)
				assert.Empty(t, state.Queue)
				for _, a := range calls {
					require.NoError(t, a.Handle.Unlock())
				}
			})
		})
	}
}
