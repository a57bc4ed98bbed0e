package etcd_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/store"
)

// A request that is not granted names a holder: its view has the label.
func TestHeldBy(t *testing.T) {
	s := open(t, etcdtest.Start(t, 1).URL())
	for i, queue := range []bool{false, false, true} {
		req := newRequest("n", i)
		req.Queue, req.Label = queue, "label "+string(rune('0'+i))
		g, err := s.Acquire(t.Context(), req)
		if i == 0 {
			require.NoError(t, err)
			require.True(t, g.Held)
			require.Empty(t, g.HeldBy)
			continue
		}
		if !queue {
			require.ErrorIs(t, err, store.ErrHeld)
		}
		require.Equal(t, "label 0", g.HeldBy)
	}
}
