package dlock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/faultstore"
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

// While the store is silent chores pile up behind those that are tried. What had no turn
// until nothing of it can be left is not tried any more.
func TestCleanerForgetsWhatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mute := faultstore.New(memory.New())
		c, err := New(mute, nil)
		require.NoError(t, err)
		heal := mute.On(faultstore.Any, faultstore.Every, faultstore.Mute())
		for range 5 * crowd {
			c.cleaner.add(c.newAttempt(c.Mutex("m").d.terms, store.Exclusive, false))
		}
		time.Sleep(c.opts.TTL + 2*c.opts.timeout(c.opts.TTL))
		tried := mute.Count(faultstore.Release)
		assert.Less(t, tried, 150, "the fault has not bitten")
		heal()
		synctest.Wait()
		time.Sleep(time.Second)
		assert.Zero(t, c.cleaner.left())
		assert.LessOrEqual(t, mute.Count(faultstore.Release), tried+maxCleaners+crowd)
		require.NoError(t, c.Close())
	})
}
