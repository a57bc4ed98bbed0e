package dlock_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/stretchr/testify/require"
)

// A request travels with its owner: it holds in one process and its call in
// another takes the same lock, while a stranger waits at the head of the queue
// and at the front of that process's line. The stranger waits for the call to
// finish, so the call must not wait for the stranger.
func TestFaultTrapReentryInAnotherProcess(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		owner := dlock.NewOwner()
		outer, err := w.c1.Mutex("a").LockContext(dlock.WithOwner(t.Context(), owner))
		require.NoError(t, err)
		w.claim(outer)
		stranger := w.beginLock(w.c2, "a")
		another := w.beginLock(w.c2, "a") // behind the first, in the line only
		require.Len(t, w.inspect("a").Queue, 1)

		text := outer.Owner().String() // as a header would carry it
		parsed, err := dlock.ParseOwner(text)
		require.NoError(t, err)
		q := w.begin(func() (*dlock.Hold, error) {
			return w.c2.Mutex("a").LockContext(dlock.WithOwner(t.Context(), parsed))
		})
		inner, at := q.granted()
		require.Zero(t, w.after(at))
		require.Equal(t, outer.Token(), inner.Token())
		require.Len(t, w.inspect("a").Holders, 2)
		stranger.waits()

		// The outer one may end first; the lock is free when both have.
		w.unlock(outer)
		stranger.waits()
		w.unlock(inner)
		h, at := stranger.granted()
		require.Zero(t, w.after(at))
		w.unlock(h)
		h, _ = another.granted()
		w.unlock(h)
	})
}

// The same with the nested call's first answer lost, and repeated: it counts
// once, and one release of it is enough.
func TestFault04ReentryInAnotherProcessReplyLost(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
		outer, err := w.c1.Mutex("a").LockContext(ctx)
		require.NoError(t, err)
		w.claim(outer)
		stranger := w.beginLock(w.c1, "a")
		w.s2.On(faultstore.Acquire, faultstore.Nth(1), faultstore.DropReply(), faultstore.Duplicate())
		inner, err := w.c2.Mutex("a").LockContext(ctx)
		require.NoError(t, err)
		require.Len(t, w.inspect("a").Holders, 2)
		w.unlock(inner)
		require.Len(t, w.inspect("a").Holders, 1)
		stranger.waits()
		w.unlock(outer)
		h, _ := stranger.granted()
		w.unlock(h)
	})
}

// Under one's own write a read is granted at once, whoever waits: a stranger in
// this process's line, strangers in the store's queue. The write may go first;
// then it is a downgrade, and waiting writers stay out until the read ends.
func TestFaultTrapReadUnderOwnWrite(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		rw := w.c1.RWMutex("a")
		write, err := rw.LockContext(t.Context())
		require.NoError(t, err)
		w.claim(write)
		here := w.beginLock(w.c1, "a")
		there := w.beginLock(w.c2, "a")
		reader := w.begin(func() (*dlock.Hold, error) { return w.c2.RWMutex("a").RLockContext(t.Context()) })

		read, at := w.begin(func() (*dlock.Hold, error) {
			return rw.RLockContext(write.Context(t.Context()))
		}).granted()
		require.Zero(t, w.after(at))
		require.Equal(t, write.Token(), read.Token())
		require.Equal(t, 2, read.Count())

		w.sleepUntil(time.Second)
		w.unlock(write)
		require.NoError(t, read.Err())
		for _, q := range []*wait{here, there, reader} {
			q.waits()
		}
		w.sleepUntil(4 * ttl)
		require.NoError(t, read.Err())
		w.unlock(read)
		for _, q := range []*wait{here, there, reader} {
			h, _ := q.granted()
			w.unlock(h)
		}
	})
}

// Several nested calls of one owner in another process, all while strangers
// come and go: none of them waits, and the strangers get in when all are done.
func TestFaultTrapReentryByEvent(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		h := w.lock(w.c1, "a")
		ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
		first := w.begin(func() (*dlock.Hold, error) { return w.c1.Mutex("a").LockContext(ctx) })
		stranger := w.beginLock(w.c2, "a")
		second := w.begin(func() (*dlock.Hold, error) { return w.c2.Mutex("a").LockContext(ctx) })
		require.Len(t, w.inspect("a").Queue, 3)
		w.sleepUntil(time.Second)
		w.unlock(h)
		outer, _ := first.granted()
		inner, at := second.granted()
		require.Equal(t, time.Second, w.after(at))
		require.Equal(t, outer.Token(), inner.Token())
		stranger.waits()
		w.unlock(outer)
		stranger.waits()
		w.unlock(inner)
		next, _ := stranger.granted()
		w.unlock(next)
	})
}
