package dlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Another call of the reader who asked for all may be on its way to the store when he
// has unlocked. It must not go by the owner by whom the others read on: the store would
// take it for an upgrade.
func TestReaderWhoLeavesIsAnotherOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(memory.New(), nil)
		require.NoError(t, err)
		other, err := c.Mutex("other").LockContext(t.Context())
		require.NoError(t, err)
		rw := c.RWMutex("m")
		first, err := rw.RLockContext(other.Context(t.Context()))
		require.NoError(t, err)
		call := c.names.join("m", first.Owner()) // of the same party
		n, id := first.grant.tenure, call.id
		assert.Equal(t, n.attempt.req.Owner, id)
		n.shard.mu.Unlock()

		second, err := rw.RLockContext(t.Context())
		require.NoError(t, err)
		require.Same(t, n, second.grant.tenure)
		require.NoError(t, first.Unlock())
		assert.NotEqual(t, id, call.id)
		assert.Zero(t, call.attempts)
		require.NoError(t, second.Unlock())

		n.shard.mu.Lock()
		call.leave()
		n.shard.mu.Unlock()
		require.NoError(t, c.Close())
	})
}

// The last one to leave goes by it to the end: the hold is given back under it.
func TestReaderWhoIsLeftKeepsTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(memory.New(), nil)
		require.NoError(t, err)
		h, err := c.RWMutex("m").RLockContext(t.Context())
		require.NoError(t, err)
		p, id := h.grant.party, h.grant.party.id
		require.NoError(t, h.Unlock())
		assert.Equal(t, id, p.id)
		require.NoError(t, c.Close())
	})
}

// Who gives up leaves his place to those who relied on him, and the owner with it.
func TestReaderWhoGivesUpIsAnotherOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, err := New(s, nil)
		require.NoError(t, err)
		far, err := New(s.Peer(), nil)
		require.NoError(t, err)
		w, err := far.Mutex("m").LockContext(t.Context())
		require.NoError(t, err)
		other, err := c.Mutex("other").LockContext(t.Context())
		require.NoError(t, err)
		rw := c.RWMutex("m")
		ctx, cancel := context.WithCancel(other.Context(t.Context()))
		go rw.RLockContext(ctx)
		synctest.Wait()
		got := make(chan *Hold)
		go func() {
			h, _ := rw.RLockContext(t.Context())
			got <- h
		}()
		synctest.Wait()
		sh := c.names.shard("m")
		sh.mu.Lock()
		p := sh.names["m"].line.reader.party
		id := p.id
		sh.mu.Unlock()

		cancel()
		synctest.Wait()
		assert.NotEqual(t, id, p.id)
		require.NoError(t, w.Unlock())
		h := <-got
		assert.Equal(t, id, h.grant.tenure.attempt.req.Owner)
		require.NoError(t, h.Unlock())
		require.NoError(t, c.Close())
		require.NoError(t, far.Close())
	})
}

// A call that is about to ask for its owner, by whom others read meanwhile, enters what
// that one holds. To ask the store would be an upgrade.
func TestReaderEntersWhatItsOwnerShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(memory.New(), nil)
		require.NoError(t, err)
		other, err := c.Mutex("other").LockContext(t.Context())
		require.NoError(t, err)
		ctx := other.Context(t.Context())
		d, short := &c.RWMutex("m").read, c.RWMutex("m", WithTTL(time.Minute))
		a := &acquisition{client: c, ctx: ctx, terms: d.terms, mode: d.mode, wait: true}
		a.party = c.names.join("m", other.Owner())
		h, err := a.lineUp()
		a.party.local.shard.mu.Unlock()
		require.NoError(t, err)
		require.Nil(t, h)

		own, err := short.RLockContext(ctx)
		require.NoError(t, err)
		beside, err := short.RLockContext(t.Context())
		require.NoError(t, err)
		require.Same(t, own.grant.tenure, beside.grant.tenure)
		h, err = a.take()
		require.NoError(t, err)
		require.Same(t, own.grant, h.grant)

		sh := a.party.local.shard
		sh.mu.Lock()
		a.party.local.line.leave(a.ticket)
		a.party.leave()
		sh.mu.Unlock()
		for _, x := range []*Hold{h, own, beside, other} {
			require.NoError(t, x.Unlock())
		}
		require.NoError(t, c.Close())
	})
}

// Those who rely on an envoy have nobody else to rely on, so that its end concerns all.
func TestReadersRelyOnOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, err := New(s, nil)
		require.NoError(t, err)
		far, err := New(s.Peer(), nil)
		require.NoError(t, err)
		w, err := far.Mutex("m").LockContext(t.Context())
		require.NoError(t, err)
		first, cancel := context.WithCancel(t.Context())
		got := make(chan *Hold, 3)
		read := func(ctx context.Context, opts ...LockOption) {
			go func() {
				h, _ := c.RWMutex("m", opts...).RLockContext(ctx)
				got <- h
			}()
			synctest.Wait()
		}
		read(first)
		read(t.Context())
		cancel()
		require.Nil(t, <-got)
		read(t.Context(), WithTTL(time.Minute))
		read(t.Context(), WithTTL(time.Minute))
		sh := c.names.shard("m")
		sh.mu.Lock()
		l := &sh.names["m"].line
		assert.True(t, l.relies())
		assert.Nil(t, l.reader)
		assert.Equal(t, 1, l.covered.Len())
		sh.mu.Unlock()
		require.NoError(t, w.Unlock())
		for range 3 {
			require.NoError(t, (<-got).Unlock())
		}
		require.NoError(t, c.Close())
		require.NoError(t, far.Close())
	})
}
