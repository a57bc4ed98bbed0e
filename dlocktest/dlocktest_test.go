package dlocktest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/dlocktest"
)

// probe is a test that records its failures, to see what dlocktest says at its end.
type probe struct {
	testing.TB
	failures []string
	cleanups []func()
}

func (p *probe) Errorf(format string, args ...any) {
	p.failures = append(p.failures, fmt.Sprintf(format, args...))
}
func (p *probe) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }
func (p *probe) Helper()          {}

// end runs what the test's end runs, and returns the failures.
func (p *probe) end() string {
	for _, f := range p.cleanups {
		f()
	}
	return strings.Join(p.failures, "\n")
}

func TestHeldLockFailsTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe{TB: t}
		client, _ := dlocktest.New(p, nil)
		hold, err := client.Mutex("forgotten").LockContext(t.Context())
		require.NoError(t, err)
		kept, err := client.Mutex("released").LockContext(t.Context())
		require.NoError(t, err)
		require.NoError(t, kept.Unlock())

		assert.Equal(t, `dlocktest: lock "forgotten" is still held at the end of the test: a hold was not unlocked`, p.end())
		assert.ErrorIs(t, hold.Err(), dlock.ErrClosed, "the client is closed")
	})
}

// A number that was miscounted is no outage.
func TestNegativeNumbersOfCallsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe{TB: t}
		client, store := dlocktest.New(p, nil)
		store.Fail(-2)
		hold, err := client.Mutex("a").TryLockContext(t.Context())
		require.NoError(t, err)
		require.NoError(t, hold.Unlock())
		assert.Equal(t, "dlocktest: -2 calls cannot be hit: n is their number, or All", p.end())
	})
}

// A lock of another client is reported by that client's end only.
func TestEachClientAnswersForItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := &probe{TB: t}, &probe{TB: t}
		_, store := dlocktest.New(p, nil)
		peer, _ := store.Peer(q, nil)
		_, err := peer.Mutex("a").LockContext(t.Context())
		require.NoError(t, err)
		assert.Empty(t, p.end())
		assert.Contains(t, q.end(), `"a" is still held`)
	})
}

// A release that goes on in the background at the end of the test is no held lock.
func TestEndWaitsForReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe{TB: t}
		client, store := dlocktest.New(p, nil)
		hold, err := client.Mutex("a").LockContext(t.Context())
		require.NoError(t, err)
		store.Fail(dlocktest.All)
		assert.ErrorIs(t, hold.Unlock(), dlock.ErrUnavailable)
		assert.Empty(t, p.end())
	})
}

// A release that ends while the end looks what is held is no held lock either. It ends soon after the
// call, so one round in ten met it.
func TestEndReadsWhatIsHeldLast(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			client, store := dlocktest.New(t, nil)
			store.LoseReplies(dlocktest.All)
			_, err := client.Mutex("a").TryLockContext(t.Context())
			assert.ErrorIs(t, err, dlock.ErrUnavailable)
		})
	}
}

// Nor is what a call that was given up gets after its end: its request hangs, and has been granted before.
func TestEndWaitsForCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe{TB: t}
		client, store := dlocktest.New(p, nil)
		store.LoseReplies(1)
		store.Hang(dlocktest.All)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := client.Mutex("a").LockContext(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Empty(t, p.end())
	})
}

// Nor is a release that takes as long as the program allows it.
func TestEndWaitsForALongStoreTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe{TB: t}
		client, store := dlocktest.New(p, &dlock.Options{StoreTimeout: 12 * time.Second, TTL: 2 * time.Minute})
		hold, err := client.Mutex("a").LockContext(t.Context())
		require.NoError(t, err)
		store.Hang(1)
		go hold.Unlock()
		synctest.Wait()
		assert.Empty(t, p.end())
	})
}

// A program may close its client and its store, as programs do.
func TestProgramThatClosesItsStore(t *testing.T) {
	for _, held := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &probe{TB: t}
			client, store := dlocktest.New(p, nil)
			hold, err := client.Mutex("a").LockContext(t.Context())
			require.NoError(t, err)
			if !held {
				require.NoError(t, hold.Unlock())
				require.NoError(t, client.Close())
			}
			require.NoError(t, store.Close())
			failures := p.end()
			assert.Equal(t, held, strings.Contains(failures, `lock "a" is still held`), failures)
			assert.NotContains(t, failures, "dlocktest: closed")
		})
	}
}

// A call that waits until the client is closed delays no end of a test.
func TestEndWaitsForNoWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := &probe{TB: t}, &probe{TB: t}
		other, store := dlocktest.New(q, nil)
		client, _ := store.Peer(p, nil)
		hold, err := other.Mutex("a").LockContext(t.Context())
		require.NoError(t, err)
		go client.Mutex("a").LockContext(context.Background())
		synctest.Wait()
		began := time.Now()
		assert.Empty(t, p.end())
		assert.Zero(t, time.Since(began))
		require.NoError(t, hold.Unlock())
		assert.Empty(t, q.end())
	})
}

// Each fault hits as many calls as it says, in the order in which the test asked for them.
func TestFaults(t *testing.T) {
	for name, x := range map[string]struct {
		inject func(*dlocktest.Store)
		took   time.Duration // at least
	}{
		"fail":          {func(s *dlocktest.Store) { s.Fail(2) }, 0},
		"hang":          {func(s *dlocktest.Store) { s.Hang(2) }, 2 * 3 * time.Second},
		"lose replies":  {func(s *dlocktest.Store) { s.LoseReplies(2) }, 0},
		"all, one time": {func(s *dlocktest.Store) { s.Fail(1); s.Hang(1) }, 3 * time.Second},
		"none":          {func(s *dlocktest.Store) { s.Fail(0) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, store := dlocktest.New(t, nil)
				x.inject(store)
				start := time.Now()
				hold, err := client.Mutex("a").LockContext(t.Context())
				require.NoError(t, err)
				assert.GreaterOrEqual(t, time.Since(start), x.took)
				assert.Less(t, time.Since(start), x.took+2*time.Second)
				assert.NoError(t, hold.Unlock())
			})
		})
	}
}

// While all calls fail a lock cannot be taken. After Heal a waiter gets it.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := dlocktest.New(t, nil)
		store.Hang(dlocktest.All)
		_, err := client.Mutex("a").TryLockContext(t.Context())
		require.ErrorIs(t, err, dlock.ErrUnavailable)

		time.AfterFunc(10*time.Second, store.Heal)
		hold, err := client.Mutex("a").LockContext(t.Context())
		require.NoError(t, err)
		assert.NoError(t, hold.Unlock())
	})
}

// A call whose reply is lost is done, and a call that fails is not.
func TestWhatTheStoreDoes(t *testing.T) {
	for name, x := range map[string]struct {
		inject  func(*dlocktest.Store)
		holders int
	}{
		"fail":       {func(s *dlocktest.Store) { s.Fail(1) }, 0},
		"hang":       {func(s *dlocktest.Store) { s.Hang(1) }, 0},
		"lose reply": {func(s *dlocktest.Store) { s.LoseReplies(1) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, store := dlocktest.New(t, nil)
				x.inject(store)
				store.Hang(dlocktest.All)
				_, err := client.Mutex("a").TryLockContext(t.Context())
				require.ErrorIs(t, err, dlock.ErrUnavailable)
				state, err := store.Inspect(t.Context(), "a")
				require.NoError(t, err)
				assert.Len(t, state.Holders, x.holders)
			})
		})
	}
}

// In an outage no event arrives. Heal wakes the waiters.
func TestHealWakesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := dlocktest.New(t, nil)
		peer, _ := store.Peer(t, nil)
		first, err := peer.Mutex("a").LockContext(t.Context())
		require.NoError(t, err)
		granted := make(chan *dlock.Hold, 1)
		go func() {
			hold, err := client.Mutex("a").LockContext(t.Context())
			assert.NoError(t, err)
			granted <- hold
		}()
		synctest.Wait()

		store.Fail(dlocktest.All)
		require.NoError(t, first.Unlock())
		synctest.Wait()
		require.Empty(t, granted, "the event arrived in the outage")
		start := time.Now()
		store.Heal()
		hold := <-granted
		assert.Less(t, time.Since(start), 100*time.Millisecond)
		assert.NoError(t, hold.Unlock())
	})
}

// The error of a call says which fault it met.
func TestErrInjected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := dlocktest.New(t, nil)
		store.LoseReplies(dlocktest.All)
		_, err := client.Mutex("a").TryLockContext(t.Context())
		assert.ErrorIs(t, err, dlock.ErrUnavailable)
		assert.ErrorIs(t, err, dlocktest.ErrInjected)
	})
}

// Lose ends one hold. Its holder is told before Lose returns, and the lock is free.
func TestLose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // OnLost is called for both holds, perhaps at once
		var reported []string
		client, store := dlocktest.New(t, &dlock.Options{OnLost: func(h *dlock.Hold) {
			mu.Lock()
			defer mu.Unlock()
			reported = append(reported, h.Name())
		}})
		rw := client.RWMutex("a")
		one, err := rw.RLockContext(t.Context())
		require.NoError(t, err)
		other, err := rw.RLockContext(t.Context())
		require.NoError(t, err)
		_ = one

		start := time.Now()
		store.Lose(other)
		assert.LessOrEqual(t, time.Since(start), 11*time.Second, "a third of the lease")
		assert.ErrorIs(t, other.Err(), dlock.ErrLost)
		synctest.Wait()
		mu.Lock()
		assert.Contains(t, reported, "a")
		mu.Unlock()
		one.Unlock()
		other.Unlock()

		next, err := client.Mutex("a").LockContext(t.Context())
		require.NoError(t, err)
		assert.NoError(t, next.Unlock())
	})
}

// A reader's lock inside the writer's is a hold of its own, with the same token: Lose takes both.
func TestLoseOfADowngrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := dlocktest.New(t, nil)
		rw := client.RWMutex("a")
		write, err := rw.LockContext(t.Context())
		require.NoError(t, err)
		read, err := rw.RLockContext(write.Context(t.Context()))
		require.NoError(t, err)
		require.Equal(t, write.Token(), read.Token())
		store.Lose(read)
		assert.ErrorIs(t, read.Err(), dlock.ErrLost)
		synctest.Wait() // the other is told in the same renewal
		assert.ErrorIs(t, write.Err(), dlock.ErrLost)
		read.Unlock()
		write.Unlock()
	})
}

// Lose finds the grant of a lock that passed from one goroutine to the next within the process.
func TestLoseAfterLocalHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := dlocktest.New(t, nil)
		lock := client.Mutex("a")
		hold, err := lock.LockContext(t.Context())
		require.NoError(t, err)
		for range 3 { // the first goes through the store
			next := make(chan *dlock.Hold)
			go func() {
				h, err := lock.LockContext(t.Context())
				assert.NoError(t, err)
				next <- h
			}()
			synctest.Wait()
			require.NoError(t, hold.Unlock())
			hold = <-next
		}
		state, err := client.Inspect(t.Context(), "a")
		require.NoError(t, err)
		require.Less(t, state.Holders[0].Token, hold.Token(), "the lock was not handed over within the process")
		store.Lose(hold)
		assert.ErrorIs(t, hold.Err(), dlock.ErrLost)
		hold.Unlock()
	})
}

// Lose of what is not held fails the test.
func TestLoseOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe{TB: t}
		client, store := dlocktest.New(p, nil)
		hold, err := client.Mutex("a").LockContext(t.Context())
		require.NoError(t, err)
		require.NoError(t, hold.Unlock())
		store.Lose(hold)
		assert.Equal(t, `dlocktest: Lose: lock "a" is not held through this store`, p.end())
	})
}

// Wrong options fail the test at once.
func TestWrongOptions(t *testing.T) {
	p := &fatal{probe{TB: t}}
	assert.PanicsWithError(t, "fatal", func() { dlocktest.New(p, &dlock.Options{MaxWaiters: -1}) })
	assert.Contains(t, p.end(), "MaxWaiters -1 is negative")
}

type fatal struct{ probe }

func (f *fatal) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	panic(errors.New("fatal"))
}

// The package works outside of a bubble.
func TestWithoutBubble(t *testing.T) {
	client, store := dlocktest.New(t, &dlock.Options{TTL: 3 * time.Second})
	store.Fail(1)
	err := client.Mutex("a").Do(t.Context(), func(ctx context.Context) error {
		hold, err := client.Mutex("a").LockContext(ctx)
		if err != nil {
			return err
		}
		defer hold.Unlock()
		store.Lose(hold)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	assert.ErrorIs(t, err, dlock.ErrLost)
}
