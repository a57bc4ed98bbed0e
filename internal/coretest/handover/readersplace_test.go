package handover

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The readers at the front of the local queue have one place at the store. They are granted
// together, as many as there are tokens, and one of the others asks for the rest.
func TestReadersWaitAtOnePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c, far := coretest.Open(t, s, &dlock.Options{LocalHandoffs: 2}), coretest.Open(t, s.Store, nil)
		w := coretest.MustLock(t, t.Context(), far.Mutex("m"))
		got, _ := waitingReaders(t, c, 7)
		assert.Len(t, coretest.Inspect(t, s, "m").Queue, 1)
		require.NoError(t, w.Unlock())
		seen := make(map[uint64]bool)
		for _, ch := range got {
			h := <-ch
			assert.Greater(t, h.Token(), w.Token())
			assert.False(t, seen[h.Token()], "a token used twice")
			seen[h.Token()] = true
			defer h.Unlock()
		}
		assert.Len(t, coretest.Inspect(t, s, "m").Holders, 3)
		assert.LessOrEqual(t, s.Acquires.Load(), int64(4))
	})
}

// A reader that may not share asks for itself only. The others have one place beside it.
func TestReadersDoNotFollowAReaderThatDoesNotShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, far := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		w := coretest.MustLock(t, t.Context(), far.Mutex("m"))
		fixed := make(chan *dlock.Hold, 1)
		go func() { fixed <- coretest.MustRLock(t, t.Context(), c.RWMutex("m", dlock.WithoutRenewal())) }()
		synctest.Wait()
		got, _ := waitingReaders(t, c, 3)
		assert.Len(t, coretest.Inspect(t, s, "m").Queue, 2)
		require.NoError(t, w.Unlock())
		for _, ch := range append(got, fixed) {
			require.NoError(t, (<-ch).Unlock())
		}
		coretest.WantFree(t, s, "m")
	})
}

// The reader whose request the others follow is cancelled. The others keep its place, before a
// writer that arrived after it.
func TestReadersKeepThePlaceOfACancelledReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, far := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		w := coretest.MustLock(t, t.Context(), far.Mutex("m"))
		got, leave := waitingReaders(t, c, 3)
		next := make(chan *dlock.Hold, 1)
		go func() { next <- coretest.MustLock(t, t.Context(), far.Mutex("m")) }()
		synctest.Wait()
		leave[0]()
		synctest.Wait()
		time.Sleep(25 * time.Millisecond) // longer than a place without waiters is kept
		more, _ := waitingReaders(t, c, 1)
		require.Len(t, coretest.Inspect(t, s, "m").Queue, 2)
		require.NoError(t, w.Unlock())
		for _, ch := range []chan *dlock.Hold{got[1], got[2], more[0]} {
			assert.NoError(t, (<-ch).Unlock())
		}
		assert.NoError(t, (<-next).Unlock())
		synctest.Wait()
		coretest.WantFree(t, s, "m")
		assert.Zero(t, coretest.Gauges(c))
	})
}

// The same for a place that is granted with one token only.
func TestReadersKeepThePlaceForOneToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, far := coretest.Open(t, scant{s, 1}, nil), coretest.Open(t, s.Peer(), nil)
		w := coretest.MustLock(t, t.Context(), far.Mutex("m"))
		got, leave := waitingReaders(t, c, 3)
		next := make(chan *dlock.Hold, 1)
		go func() { next <- coretest.MustLock(t, t.Context(), far.Mutex("m")) }()
		synctest.Wait()
		leave[0]()
		synctest.Wait()
		require.NoError(t, w.Unlock())
		first := <-got[1]
		assert.Empty(t, next, "the place was given up")
		synctest.Wait()
		assert.Len(t, coretest.Inspect(t, s, "m").Holders, 1)
		require.NoError(t, first.Unlock())
		require.NoError(t, (<-next).Unlock())
		require.NoError(t, (<-got[2]).Unlock())
		synctest.Wait()
		coretest.WantFree(t, s, "m")
	})
}

// The place of a writer that has gone is not kept for readers, which have another.
func TestReadersDoNotKeepAWritersPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		first, writers := handing(t, c, t.Context())
		require.NoError(t, first.Unlock())
		w := <-writers[0]
		got, _ := waitingReaders(t, c, 2)
		time.Sleep(25 * time.Millisecond)
		synctest.Wait()
		assert.Len(t, coretest.Inspect(t, s, "m").Queue, 1)
		require.NoError(t, w.Unlock())
		for _, ch := range got {
			require.NoError(t, (<-ch).Unlock())
		}
		coretest.WantFree(t, s, "m")
	})
}

func TestReadersThatAreAllCancelledLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, far := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		w := coretest.MustLock(t, t.Context(), far.Mutex("m"))
		_, leave := waitingReaders(t, c, 3)
		for _, cancel := range leave {
			cancel()
		}
		synctest.Wait()
		assert.Empty(t, coretest.Inspect(t, s, "m").Queue)
		assert.Zero(t, coretest.Gauges(c))
		require.NoError(t, w.Unlock())
	})
}
