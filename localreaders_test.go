package dlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// waitingReaders are n calls of a client that wait for a reader's lock, one after
// the other, while somebody else has the writer's.
func waitingReaders(t *testing.T, c *dlock.Client, n int) (got []chan *dlock.Hold, leave []context.CancelFunc) {
	t.Helper()
	for range n {
		ctx, cancel := context.WithCancel(t.Context())
		ch := make(chan *dlock.Hold, 1)
		got, leave = append(got, ch), append(leave, cancel)
		go func() {
			h, err := c.RWMutex("m").RLockContext(ctx)
			if err != nil {
				assert.ErrorIs(t, err, context.Canceled)
				close(ch)
				return
			}
			ch <- h
		}()
		synctest.Wait()
	}
	return got, leave
}

// Who comes while others of this process read joins them without a call of the
// store, with a token of its own; the last one gives the hold back.
func TestReadersShareAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		rw := c.RWMutex("m")
		var holds []*dlock.Hold
		var tokens []uint64
		for range 30 {
			h := mustRLock(t, t.Context(), rw)
			holds, tokens = append(holds, h), append(tokens, h.Token())
		}
		require.True(t, rw.TryRLock())
		wantRising(t, tokens)
		assert.Equal(t, int64(1), s.calls())
		assert.Len(t, inspect(t, s, "m").Holders, 1)
		for _, h := range holds {
			require.NoError(t, h.Unlock())
			assert.ErrorIs(t, h.Err(), dlock.ErrNotHeld)
		}
		assert.Equal(t, int64(1), s.calls())
		rw.RUnlock()
		assert.Equal(t, int64(2), s.calls())
		wantFree(t, s, "m")
		w := mustLock(t, t.Context(), rw)
		assert.Greater(t, w.Token(), tokens[29])
		require.NoError(t, w.Unlock())
	})
}

// The readers at the front of the line have one place and are granted together, as
// many as there are tokens; one of the others asks for those who are left.
func TestReadersWaitAtOnePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c, far := open(t, s, &dlock.Options{LocalHandoffs: 2}), open(t, s.Store, nil)
		w := mustLock(t, t.Context(), far.Mutex("m"))
		got, _ := waitingReaders(t, c, 7)
		assert.Len(t, inspect(t, s, "m").Queue, 1)
		require.NoError(t, w.Unlock())
		seen := make(map[uint64]bool)
		for _, ch := range got {
			h := <-ch
			assert.Greater(t, h.Token(), w.Token())
			assert.False(t, seen[h.Token()], "a token given twice")
			seen[h.Token()] = true
			defer h.Unlock()
		}
		assert.Len(t, inspect(t, s, "m").Holders, 3)
		assert.LessOrEqual(t, s.acquires.Load(), int64(4))
	})
}

// A writer of another process waits for the window and the readers within, however
// many come one after the other.
func TestReadersShareForAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, far := open(t, s, &dlock.Options{LocalHandoffs: 1000}), open(t, s.Peer(), nil)
		over := make(chan struct{})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for !closed(over) {
					h := mustRLock(t, t.Context(), c.RWMutex("m"))
					time.Sleep(3 * time.Millisecond)
					assert.NoError(t, h.Unlock())
				}
			})
		}
		for i := range 10 {
			time.Sleep(time.Duration(i) * time.Millisecond)
			began := time.Now()
			w := mustLock(t, t.Context(), far.Mutex("m"))
			assert.LessOrEqual(t, time.Since(began), 13*time.Millisecond)
			require.NoError(t, w.Unlock())
		}
		close(over)
		wg.Wait()
		wantFree(t, s, "m")
	})
}

// A writer who waits in this process ends it at once.
func TestReadersDoNotJoinPastAWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, memory.New(), nil)
		rw := c.RWMutex("m")
		r := mustRLock(t, t.Context(), rw)
		wrote := make(chan struct{})
		go func() {
			w := mustLock(t, t.Context(), rw)
			close(wrote)
			assert.NoError(t, w.Unlock())
		}()
		synctest.Wait()
		assert.False(t, rw.TryRLock())
		got, _ := waitingReaders(t, c, 1)
		assert.Empty(t, got[0])
		require.NoError(t, r.Unlock())
		late := <-got[0]
		assert.True(t, closed(wrote))
		require.NoError(t, late.Unlock())
	})
}

// Nor do readers join past those who wait behind readers that have to ask themselves.
func TestReadersDoNotJoinPastALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		rw := c.RWMutex("m")
		r := mustRLock(t, t.Context(), rw)
		arrive := make(chan struct{})
		s.onAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
			if req.TTL == time.Minute {
				<-arrive
			}
			return s.Store.Acquire(ctx, req)
		})
		asked := make(chan *dlock.Hold, 1)
		go func() { asked <- mustRLock(t, t.Context(), c.RWMutex("m", dlock.WithTTL(time.Minute))) }()
		synctest.Wait()
		wrote := make(chan *dlock.Hold, 1)
		go func() { wrote <- mustLock(t, t.Context(), rw) }()
		synctest.Wait()
		got, _ := waitingReaders(t, c, 1)
		assert.Empty(t, got[0], "joined past a writer")
		close(arrive)
		require.NoError(t, (<-asked).Unlock())
		require.NoError(t, r.Unlock())
		w := <-wrote
		assert.Empty(t, got[0])
		require.NoError(t, w.Unlock())
		require.NoError(t, (<-got[0]).Unlock())
		wantFree(t, s, "m")
	})
}

// One who may not share asks for himself only, and others have one place beside his.
func TestReadersDoNotRelyOnOneWhoMayNotShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, far := open(t, s, nil), open(t, s.Peer(), nil)
		w := mustLock(t, t.Context(), far.Mutex("m"))
		fixed := make(chan *dlock.Hold, 1)
		go func() { fixed <- mustRLock(t, t.Context(), c.RWMutex("m", dlock.WithoutRenewal())) }()
		synctest.Wait()
		got, _ := waitingReaders(t, c, 3)
		assert.Len(t, inspect(t, s, "m").Queue, 2)
		require.NoError(t, w.Unlock())
		for _, ch := range append(got, fixed) {
			require.NoError(t, (<-ch).Unlock())
		}
		wantFree(t, s, "m")
	})
}

// What those who do not share have to themselves.
func TestReadersWhoDoNotShare(t *testing.T) {
	for what, tc := range map[string]struct {
		opts   dlock.Options
		first  []dlock.LockOption
		second []dlock.LockOption
		as     func(*dlock.RWMutex) *dlock.RWMutex
	}{
		"off":             {opts: dlock.Options{LocalHandoffs: -1}},
		"MaxHold":         {opts: dlock.Options{MaxHold: time.Hour}},
		"fixed":           {first: []dlock.LockOption{dlock.WithoutRenewal()}, second: []dlock.LockOption{dlock.WithoutRenewal()}},
		"another TTL":     {second: []dlock.LockOption{dlock.WithTTL(time.Minute)}},
		"explicit owners": {as: func(rw *dlock.RWMutex) *dlock.RWMutex { return rw.As(dlock.NewOwner()) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			c := open(t, s, &tc.opts)
			one, two := c.RWMutex("m", tc.first...), c.RWMutex("m", tc.second...)
			if tc.as != nil {
				one, two = tc.as(one), tc.as(two)
			}
			a, b := mustRLock(t, t.Context(), one), mustRLock(t, t.Context(), two)
			assert.Len(t, inspect(t, s, "m").Holders, 2, what)
			require.NoError(t, a.Unlock())
			require.NoError(t, b.Unlock())
			wantFree(t, s, "m")
		})
	}
}

// The reader who asks for all gives up: the others keep the place, before the writer
// who came after it.
func TestReadersKeepThePlaceOfOneWhoLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, far := open(t, s, nil), open(t, s.Peer(), nil)
		w := mustLock(t, t.Context(), far.Mutex("m"))
		got, leave := waitingReaders(t, c, 3)
		next := make(chan *dlock.Hold, 1)
		go func() { next <- mustLock(t, t.Context(), far.Mutex("m")) }()
		synctest.Wait()
		leave[0]()
		synctest.Wait()
		time.Sleep(25 * time.Millisecond) // longer than a place is kept that nobody wants
		more, _ := waitingReaders(t, c, 1)
		require.Len(t, inspect(t, s, "m").Queue, 2)
		require.NoError(t, w.Unlock())
		for _, ch := range []chan *dlock.Hold{got[1], got[2], more[0]} {
			assert.NoError(t, (<-ch).Unlock())
		}
		assert.NoError(t, (<-next).Unlock())
		synctest.Wait()
		wantFree(t, s, "m")
		assert.Zero(t, dlock.NamesInUse(c))
	})
}

// It is theirs too when it comes with one token only.
func TestReadersKeepThePlaceForOneToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, far := open(t, scant{s, 1}, nil), open(t, s.Peer(), nil)
		w := mustLock(t, t.Context(), far.Mutex("m"))
		got, leave := waitingReaders(t, c, 3)
		next := make(chan *dlock.Hold, 1)
		go func() { next <- mustLock(t, t.Context(), far.Mutex("m")) }()
		synctest.Wait()
		leave[0]()
		synctest.Wait()
		require.NoError(t, w.Unlock())
		first := <-got[1]
		assert.Empty(t, next, "the place was given up")
		synctest.Wait()
		assert.Len(t, inspect(t, s, "m").Holders, 1)
		require.NoError(t, first.Unlock())
		require.NoError(t, (<-next).Unlock())
		require.NoError(t, (<-got[2]).Unlock())
		synctest.Wait()
		wantFree(t, s, "m")
	})
}

// A place that a writer left does not stay for readers' sake, who have another.
func TestReadersDoNotKeepAWritersPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := open(t, s, nil)
		first, writers := handing(t, c, t.Context())
		require.NoError(t, first.Unlock())
		w := <-writers[0]
		got, _ := waitingReaders(t, c, 2)
		time.Sleep(25 * time.Millisecond)
		synctest.Wait()
		assert.Len(t, inspect(t, s, "m").Queue, 1)
		require.NoError(t, w.Unlock())
		for _, ch := range got {
			require.NoError(t, (<-ch).Unlock())
		}
		wantFree(t, s, "m")
	})
}

// When all of them give up nothing is left.
func TestReadersWhoAllLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, far := open(t, s, nil), open(t, s.Peer(), nil)
		w := mustLock(t, t.Context(), far.Mutex("m"))
		_, leave := waitingReaders(t, c, 3)
		for _, cancel := range leave {
			cancel()
		}
		synctest.Wait()
		assert.Empty(t, inspect(t, s, "m").Queue)
		assert.Zero(t, dlock.NamesInUse(c))
		require.NoError(t, w.Unlock())
	})
}

// An outage reaches all who rely on the one who asks.
func TestReadersAreToldOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		s.goDown()
		began := time.Now()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				_, err := c.RWMutex("m").RLockContext(t.Context())
				assert.ErrorIs(t, err, dlock.ErrUnavailable)
				assert.InDelta(t, ttl, time.Since(began), float64(waitTTL))
			})
		}
		wg.Wait()
		s.recover()
	})
}

// Who reads with others of this process cannot write beside them, and the store is
// not asked, which takes them for one. The last of them can, and then nobody joins.
func TestReadersWhoShareUpgradeAlone(t *testing.T) {
	for _, last := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newSpy(memory.New())
			rw := open(t, s, nil).RWMutex("m")
			holds := []*dlock.Hold{mustRLock(t, t.Context(), rw), mustRLock(t, t.Context(), rw)}
			for _, h := range holds {
				_, err := rw.LockContext(h.Context(t.Context()))
				assert.ErrorIs(t, err, dlock.ErrUpgrade)
			}
			assert.Equal(t, int64(1), s.calls())
			require.NoError(t, holds[1-last].Unlock())
			r := holds[last]
			w := mustLock(t, r.Context(t.Context()), rw)
			assert.Greater(t, w.Token(), r.Token())
			assert.False(t, rw.TryRLock())
			require.NoError(t, w.Unlock())
			assert.True(t, rw.TryRLock())
			rw.RUnlock()
			require.NoError(t, r.Unlock())
			wantFree(t, s, "m")
		})
	}
}

// While an upgrade is on its way nobody joins the one who asks for it.
func TestReadersDoNotJoinAnUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		rw := c.RWMutex("m")
		r := mustRLock(t, t.Context(), rw)
		arrive := make(chan struct{})
		s.onAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
			if req.Mode == store.Exclusive {
				<-arrive
			}
			return s.Store.Acquire(ctx, req)
		})
		wrote := make(chan *dlock.Hold)
		go func() { wrote <- mustLock(t, r.Context(t.Context()), rw) }()
		synctest.Wait()
		beside := mustRLock(t, t.Context(), rw) // by a hold of its own, of which the store knows
		assert.Len(t, inspect(t, s, "m").Holders, 2)
		require.NoError(t, beside.Unlock())
		close(arrive)
		w := <-wrote
		require.NoError(t, w.Unlock())
		require.NoError(t, r.Unlock())
		wantFree(t, s, "m")
	})
}

// Two calls of one owner are two requests under its id: what they get is not shared,
// or it could upgrade beside those who read by it.
func TestReadersWhoAskTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, far := open(t, s, nil), open(t, s.Peer(), nil)
		rw, other := c.RWMutex("m"), mustLock(t, t.Context(), c.Mutex("other"))
		w := mustLock(t, t.Context(), far.Mutex("m"))
		once, cancel := context.WithCancel(other.Context(t.Context()))
		go func() {
			_, err := rw.RLockContext(once)
			assert.ErrorIs(t, err, context.Canceled)
		}()
		synctest.Wait()
		twice := make(chan *dlock.Hold, 1)
		go func() { twice <- mustRLock(t, other.Context(t.Context()), rw) }()
		synctest.Wait()
		got, _ := waitingReaders(t, c, 1)
		cancel()
		synctest.Wait()
		require.NoError(t, w.Unlock())
		r, beside := <-twice, <-got[0]
		_, err := rw.LockContext(r.Context(t.Context()))
		assert.ErrorIs(t, err, dlock.ErrUpgrade)
		require.NoError(t, beside.Unlock())
		require.NoError(t, r.Unlock())
		require.NoError(t, other.Unlock())
	})
}

// A lost lease is told to everyone who reads by it, and given back once.
func TestReadersAreAllToldOfALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		var lost losses
		rw := open(t, s, &dlock.Options{OnLost: lost.add}).RWMutex("m")
		a, b := mustRLock(t, t.Context(), rw), mustRLock(t, t.Context(), rw)
		again := mustRLock(t, b.Context(t.Context()), rw)
		assert.Equal(t, b.Token(), again.Token())
		s.cutRenewals(refuseConnection)
		time.Sleep(ttl)
		synctest.Wait()
		assert.ElementsMatch(t, []*dlock.Hold{a, b}, lost.all())
		for _, h := range []*dlock.Hold{a, b, again} {
			assert.ErrorIs(t, h.Err(), dlock.ErrLost)
			assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		}
		assert.Equal(t, int64(1), s.releases.Load())
		s.recover()
		assert.True(t, rw.TryRLock())
		rw.RUnlock()
	})
}

func TestReadersAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		rw := c.RWMutex("m")
		a, b := mustRLock(t, t.Context(), rw), mustRLock(t, t.Context(), rw)
		require.NoError(t, c.Close())
		assert.ErrorIs(t, a.Err(), dlock.ErrClosed)
		assert.ErrorIs(t, b.Err(), dlock.ErrClosed)
		assert.Equal(t, int64(1), s.releases.Load())
		wantFree(t, s, "m")
	})
}
