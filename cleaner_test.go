package dlock

import (
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is done is not kept: neither while there is more to do, nor by the list after it.
func TestCleanerKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(memory.New(), nil)
		require.NoError(t, err)
		k := &cleaner{client: c, workers: maxCleaners} // nobody works
		for range 3 {
			k.add(c.newAttempt(c.Mutex("m").d.terms, store.Exclusive, true))
		}
		list := k.chores
		_, ok := k.take()
		assert.True(t, ok)
		assert.Nil(t, list[0].attempt)
		assert.NotNil(t, list[1].attempt)
		k.take()
		k.take()
		assert.Nil(t, k.chores)
		require.NoError(t, c.Close())
	})
}
