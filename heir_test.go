package dlock

import (
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// oneOfTwo returns the hold of the first of two who have waited for m; the second
// waits on.
func oneOfTwo(t *testing.T, m *Mutex) (first *Hold, second chan *Hold) {
	before, err := m.LockContext(t.Context())
	require.NoError(t, err)
	second = make(chan *Hold, 2)
	for range 2 {
		go func() {
			h, _ := m.LockContext(t.Context())
			second <- h
		}()
		synctest.Wait()
	}
	require.NoError(t, before.Unlock())
	first = <-second
	synctest.Wait()
	return first, second
}

// What each condition of a tenure passing on keeps out: two parties that the
// store takes for one, a lease that has run out unseen, a batch without end.
func TestHeir(t *testing.T) {
	for what, spoil := range map[string]func(n *tenure, t *ticket){
		"span used up":                      func(n *tenure, _ *ticket) { n.spare = 0 },
		"batch over":                        func(n *tenure, _ *ticket) { n.began = n.began.Add(-handoverWindow) },
		"another call of who leaves":        func(n *tenure, _ *ticket) { n.grants[0].party.refs++ },
		"something else asked by its id":    func(n *tenure, _ *ticket) { n.grants[0].party.attempts++ },
		"another call of who comes":         func(_ *tenure, k *ticket) { k.party.refs++ },
		"something else asked by the other": func(_ *tenure, k *ticket) { k.party.attempts++ },
		"lease run out, and nobody told":    func(n *tenure, _ *ticket) { n.lease.Disarm() },
		"client closing":                    func(n *tenure, _ *ticket) { n.client.closing = closedChan },
	} {
		synctest.Test(t, func(t *testing.T) {
			c, err := New(memory.New(), nil)
			require.NoError(t, err)
			h, got := oneOfTwo(t, c.Mutex("m"))

			closing := c.closing
			n := h.grant.tenure
			n.shard.mu.Lock()
			front := h.grant.party.local.line.writer
			assert.Same(t, front, n.heir())
			spoil(n, front)
			assert.Nil(t, n.heir(), what)
			c.closing = closing
			n.shard.mu.Unlock()
			_ = c.Close()
			<-got
		})
	}
}

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// What was granted to an id that was asked for more than once may be a re-entry,
// and the tokens after that one another's.
func TestTenureOfAnIDAskedForTwice(t *testing.T) {
	n := &tenure{spare: 5}
	n.buildOn(&party{attempts: 1})
	assert.Equal(t, 5, n.spare)
	n.buildOn(&party{attempts: 2})
	assert.Zero(t, n.spare)
}
