package dlock_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadersHoldTogetherAndExcludeWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, peer := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		rw := c.RWMutex("m")
		rw.RLock()
		require.True(t, rw.TryRLock())
		far := coretest.MustRLock(t, t.Context(), peer.RWMutex("m"))
		assert.Len(t, coretest.Inspect(t, s, "m").Holders, 2, "one for each process")

		assert.False(t, rw.TryLock())
		assert.False(t, peer.RWMutex("m").TryLock())
		assert.False(t, peer.Mutex("m").TryLock(), "Mutex is the writers' side of the same lock")
		coretest.WantPanic(t, rw.Unlock, "unlock", dlock.ErrNotHeld)
		rw.RUnlock()
		rw.RUnlock()
		coretest.WantPanic(t, rw.RUnlock, "runlock", dlock.ErrNotHeld)
		require.NoError(t, far.Unlock())

		rw.Lock()
		assert.False(t, rw.TryRLock())
		assert.False(t, peer.RWMutex("m").TryRLock())
		assert.False(t, peer.Mutex("m").TryLock())
		coretest.WantPanic(t, rw.RUnlock, "runlock", dlock.ErrNotHeld)
		rw.Unlock()
		assert.Equal(t, "m", rw.Name())
	})
}

func TestErrorsNameTheReadersForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rw := coretest.Open(t, memory.New(), nil).RWMutex("")
		_, err := rw.RLockContext(t.Context())
		coretest.WantError(t, err, "rlock", "", dlock.ErrInvalidName)
		_, err = rw.TryRLockContext(t.Context())
		coretest.WantError(t, err, "tryrlock", "", dlock.ErrInvalidName)
		coretest.WantError(t, rw.RDo(t.Context(), nil), "rdo", "", dlock.ErrInvalidName)
		coretest.WantPanic(t, rw.RLock, "rlock", dlock.ErrInvalidName)
		coretest.WantPanic(t, func() { rw.TryRLock() }, "tryrlock", dlock.ErrInvalidName)
		coretest.WantPanic(t, rw.RUnlock, "runlock", dlock.ErrNotHeld)
		coretest.WantPanic(t, rw.RLocker().Unlock, "runlock", dlock.ErrNotHeld)
	})
}

func TestRLockerIsTheReadersSide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rw := coretest.Open(t, memory.New(), nil).RWMutex("m")
		r := rw.RLocker()
		r.Lock()
		assert.True(t, rw.TryRLock())
		assert.False(t, rw.TryLock())
		r.Unlock()
		rw.RLocker().Unlock() // the same rw
		rw.Lock()
		rw.Unlock()
	})
}

func TestRDoHoldsAsAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		rw := coretest.Open(t, s, nil).RWMutex("m")
		failed := errors.New("failed")
		assert.Equal(t, failed, rw.RDo(t.Context(), func(ctx context.Context) error {
			assert.True(t, rw.TryRLock())
			rw.RUnlock()
			assert.False(t, rw.TryLock())
			assert.NoError(t, rw.RDo(ctx, func(context.Context) error { return nil }))
			return failed
		}))
		coretest.WantFree(t, s, "m")
	})
}

// A writer waits for the readers, and later readers wait for the writer, in this process and in
// others. Only an owner that reads already may read again.
func TestReadersDoNotPassAWaitingWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, peer := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		reader := coretest.MustRLock(t, t.Context(), c.RWMutex("m"))

		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		arrive := func(name string, lock, unlock func()) {
			wg.Go(func() {
				lock()
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				time.Sleep(time.Second)
				unlock()
			})
			synctest.Wait()
		}
		w, r, far := c.RWMutex("m"), c.RWMutex("m"), peer.RWMutex("m")
		arrive("writer", w.Lock, w.Unlock)
		arrive("reader", r.RLock, r.RUnlock)
		arrive("far reader", far.RLock, far.RUnlock)
		assert.False(t, c.RWMutex("m").TryRLock())
		assert.False(t, peer.RWMutex("m").TryRLock())

		again := coretest.MustRLock(t, reader.Context(t.Context()), c.RWMutex("m"))
		assert.Equal(t, reader.Token(), again.Token())
		require.NoError(t, again.Unlock())
		mu.Lock()
		assert.Empty(t, order)
		mu.Unlock()
		require.NoError(t, reader.Unlock())
		wg.Wait()
		assert.Equal(t, "writer", order[0])
		assert.Len(t, order, 3)
	})
}

// Fifty readers that lock again and again without a gap do not starve a writer.
func TestFault79WriterIsNotStarvedByCyclingReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		clients := []*dlock.Client{coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)}
		const reading = 10 * time.Millisecond
		var stop atomic.Bool
		var reads atomic.Int64
		var wg sync.WaitGroup
		for i := range 50 {
			rw := clients[i%2].RWMutex("m")
			wg.Go(func() {
				time.Sleep(time.Duration(i) * reading / 50) // some read at every moment
				for !stop.Load() {
					rw.RLock()
					reads.Add(1)
					time.Sleep(reading)
					rw.RUnlock()
				}
			})
		}
		for i := range 8 {
			time.Sleep(100 * time.Millisecond)
			before, w, start := reads.Load(), clients[i%2].RWMutex("m"), time.Now()
			w.Lock()
			assert.LessOrEqual(t, time.Since(start), reading, "the writer waits only for the readers that hold")
			assert.Greater(t, before, int64(100*i))
			w.Unlock()
		}
		stop.Store(true)
		wg.Wait()
	})
}

// Many readers and writers of three processes: a writer never holds beside another owner.
func TestReadersAndWritersExclude(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		var readers, writers, most atomic.Int64
		var wg sync.WaitGroup
		for _, c := range []*dlock.Client{coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil), coretest.Open(t, s.Peer(), nil)} {
			rw := c.RWMutex("m")
			for range 10 {
				wg.Go(func() {
					for range 10 {
						rw.RLock()
						most.Store(max(most.Load(), readers.Add(1)))
						assert.Zero(t, writers.Load())
						time.Sleep(time.Millisecond)
						readers.Add(-1)
						rw.RUnlock()
					}
				})
			}
			for range 3 {
				wg.Go(func() {
					for range 10 {
						rw.Lock()
						assert.EqualValues(t, 1, writers.Add(1))
						assert.Zero(t, readers.Load())
						time.Sleep(time.Millisecond)
						writers.Add(-1)
						rw.Unlock()
					}
				})
			}
		}
		wg.Wait()
		assert.Greater(t, most.Load(), int64(1), "readers read together")
		coretest.WantFree(t, s, "m")
	})
}

var _ store.Store = (*coretest.Spy)(nil)

// Close ends the holds of one value, and loses none: no Unlock after it warns of a lost one.
func TestUnlockAfterCloseWarnsOfNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := new(coretest.Logs)
		c := coretest.Open(t, memory.New(), &dlock.Options{Logger: slog.New(logs)})
		rw := c.RWMutex("m")
		rw.RLock()
		rw.RLock()
		require.NoError(t, c.Close())
		rw.RUnlock()
		rw.RUnlock()
		assert.Empty(t, logs.Of(slog.LevelWarn, ""))
	})
}
