package faults

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/stretchr/testify/require"
)

// An owner holds in one process, and its call in another process takes the same lock. Meanwhile
// another owner waits at the head of the store's queue and of that process's local queue. That
// owner waits for the call, so the call must not wait for it.
func TestFaultTrapReentryInAnotherProcess(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		owner := dlock.NewOwner()
		outer, err := w.C1.Mutex("a").LockContext(dlock.WithOwner(t.Context(), owner))
		require.NoError(t, err)
		w.Claim(outer)
		other := w.BeginLock(w.C2, "a")
		another := w.BeginLock(w.C2, "a") // behind the first, in the local queue only
		require.Len(t, w.Inspect("a").Queue, 1)

		text := outer.Owner().String() // as a header would carry it
		parsed, err := dlock.ParseOwner(text)
		require.NoError(t, err)
		q := w.Begin(func() (*dlock.Hold, error) {
			return w.C2.Mutex("a").LockContext(dlock.WithOwner(t.Context(), parsed))
		})
		inner, at := q.Granted()
		require.Zero(t, w.After(at))
		require.Equal(t, outer.Token(), inner.Token())
		require.Len(t, w.Inspect("a").Holders, 2)
		other.StillWaits()

		// The outer hold may end first. The lock is free when both have ended.
		w.Unlock(outer)
		other.StillWaits()
		w.Unlock(inner)
		h, at := other.Granted()
		require.Zero(t, w.After(at))
		w.Unlock(h)
		h, _ = another.Granted()
		w.Unlock(h)
	})
}

// The same with the first answer to the nested call lost and the request repeated. It counts once,
// and one release ends it.
func TestFault04ReentryInAnotherProcessReplyLost(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
		outer, err := w.C1.Mutex("a").LockContext(ctx)
		require.NoError(t, err)
		w.Claim(outer)
		other := w.BeginLock(w.C1, "a")
		w.S2.On(faultstore.Acquire, faultstore.Nth(1), faultstore.DropReply(), faultstore.Duplicate())
		inner, err := w.C2.Mutex("a").LockContext(ctx)
		require.NoError(t, err)
		require.Len(t, w.Inspect("a").Holders, 2)
		w.Unlock(inner)
		require.Len(t, w.Inspect("a").Holders, 1)
		other.StillWaits()
		w.Unlock(outer)
		h, _ := other.Granted()
		w.Unlock(h)
	})
}

// Under its own exclusive hold an owner gets a shared one at once, past waiters in the local queue
// and in the store's queue. The exclusive hold may end first. That is a downgrade, and waiting
// writers stay out until the shared hold ends.
func TestFaultTrapReadUnderOwnWrite(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		rw := w.C1.RWMutex("a")
		write, err := rw.LockContext(t.Context())
		require.NoError(t, err)
		w.Claim(write)
		here := w.BeginLock(w.C1, "a")
		there := w.BeginLock(w.C2, "a")
		reader := w.Begin(func() (*dlock.Hold, error) { return w.C2.RWMutex("a").RLockContext(t.Context()) })

		read, at := w.Begin(func() (*dlock.Hold, error) {
			return rw.RLockContext(write.Context(t.Context()))
		}).Granted()
		require.Zero(t, w.After(at))
		require.Equal(t, write.Token(), read.Token())
		require.Equal(t, 2, read.Count())

		w.SleepUntil(time.Second)
		w.Unlock(write)
		require.NoError(t, read.Err())
		for _, q := range []*coretest.Call{here, there, reader} {
			q.StillWaits()
		}
		w.SleepUntil(4 * ttl)
		require.NoError(t, read.Err())
		w.Unlock(read)
		for _, q := range []*coretest.Call{here, there, reader} {
			h, _ := q.Granted()
			w.Unlock(h)
		}
	})
}

// Two calls of one owner wait in two processes. When one is granted, so is the other, past another
// owner between them. That owner gets the lock when both have unlocked.
func TestFaultTrapReentryByEvent(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		h := w.Lock(w.C1, "a")
		ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
		first := w.Begin(func() (*dlock.Hold, error) { return w.C1.Mutex("a").LockContext(ctx) })
		other := w.BeginLock(w.C2, "a")
		second := w.Begin(func() (*dlock.Hold, error) { return w.C2.Mutex("a").LockContext(ctx) })
		require.Len(t, w.Inspect("a").Queue, 3)
		w.SleepUntil(time.Second)
		w.Unlock(h)
		outer, _ := first.Granted()
		inner, at := second.Granted()
		require.Equal(t, time.Second, w.After(at))
		require.Equal(t, outer.Token(), inner.Token())
		other.StillWaits()
		w.Unlock(outer)
		other.StillWaits()
		w.Unlock(inner)
		next, _ := other.Granted()
		w.Unlock(next)
	})
}

// Two calls of one owner ask at the same time, and the answers come in the other order: the first
// knew no other hold of the owner. Nothing is lost.
func TestFaultTrapFirstGrantAnsweredLast(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
		w.S1.On(faultstore.Acquire, faultstore.Nth(1), faultstore.DelayReply(time.Second))
		lock := func() (*dlock.Hold, error) { return w.C1.Mutex("a").LockContext(ctx) }
		first := w.Begin(lock)
		w.S1.Await(faultstore.Acquire, 1)
		second, at := w.Begin(lock).Granted()
		require.Zero(t, w.After(at))
		w.SleepUntil(2 * time.Second)
		outer, at := first.Granted()
		require.Equal(t, time.Second, w.After(at))
		require.NoError(t, second.Err())
		w.Unlock(second)
		w.Unlock(outer)
	})
}
