package dlock

import (
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Fault 91: a count that has reached 2^31-1 is full. It does not wrap, and the
// holds are still there.
func TestFault91HoldCountIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(memory.New(), nil)
		require.NoError(t, err)
		rw := c.RWMutex("m").As(NewOwner())
		h, err := rw.LockContext(t.Context())
		require.NoError(t, err)
		p, sh := h.grant.party, h.grant.party.local.shard
		pretend := func(n int) {
			sh.mu.Lock()
			p.live += n
			p.refs += n
			sh.mu.Unlock()
		}
		const most = 1<<31 - 1
		pretend(most - 2)
		last, err := rw.LockContext(t.Context())
		require.NoError(t, err)
		assert.Equal(t, most, last.Count())

		_, err = rw.LockContext(t.Context())
		assert.ErrorIs(t, err, ErrTooManyHolds)
		_, err = rw.TryLockContext(t.Context())
		assert.ErrorIs(t, err, ErrTooManyHolds)
		assert.Panics(t, rw.Lock)
		assert.False(t, rw.TryLock())
		assert.Equal(t, most, last.Count())
		assert.NoError(t, h.Err())

		require.NoError(t, last.Unlock())
		again, err := rw.LockContext(t.Context())
		require.NoError(t, err)
		require.NoError(t, again.Unlock())
		pretend(2 - most)
		require.NoError(t, h.Unlock())
		require.NoError(t, c.Close())
	})
}
