package dlock

import (
	"context"
	"sync"
)

// RWMutex is a lock that any number of readers hold, or one writer. It is the
// same lock as the Mutex of its name, which is the writer's side. It is safe for
// concurrent use. All that is said of [Mutex] holds here too: prefer Do and RDo, or
// LockContext and RLockContext, to the forms that return no Hold.
//
// Readers and writers are served in the order in which they came. A reader does not
// pass a waiting writer, unless the reader's owner holds the lock already. Within the
// bounds of Options.LocalHandoffs two exceptions hold. Writers of one process may pass
// the waiters of others, and readers of a process may join one of its readers.
//
// An owner that holds the writer's lock may take the reader's lock under it, and may
// then unlock the writer's first. This is a downgrade: no other writer comes between.
// The other way round is an upgrade: the writer's lock under the owner's own reader's
// lock. It succeeds if no other owner reads, and fails at once with ErrUpgrade
// otherwise, because two readers would wait for each other for ever.
type RWMutex struct{ write, read locker }

// Lock is Mutex.Lock: it waits until all readers and writers have left. Under the
// owner's own reader's lock (see As) it panics if other owners read too.
func (rw *RWMutex) Lock() { rw.write.lock() }

// Unlock is Mutex.Unlock, for Lock and TryLock. The rule for several holds of one
// value, of which one was lost, is the same.
func (rw *RWMutex) Unlock() { rw.write.unlock() }

// TryLock is Mutex.TryLock. It is also false where Lock would be an upgrade that is
// refused.
func (rw *RWMutex) TryLock() bool { return rw.write.tryLock() }

// LockContext is Mutex.LockContext, and may also fail with ErrUpgrade.
func (rw *RWMutex) LockContext(ctx context.Context) (*Hold, error) {
	return rw.write.lockContext(ctx, true)
}

// TryLockContext is Mutex.TryLockContext, and may also fail with ErrUpgrade.
func (rw *RWMutex) TryLockContext(ctx context.Context) (*Hold, error) {
	return rw.write.lockContext(ctx, false)
}

// Do is Mutex.Do under the writer's lock.
func (rw *RWMutex) Do(ctx context.Context, fn func(context.Context) error) error {
	return rw.write.do(ctx, fn)
}

// RLock is Lock for a reader: it waits until the writer, and writers that came
// before it, have left. Each RLock is an owner of its own, so a nested RLock can
// deadlock with a writer that waits in between. As returns an RWMutex that nests.
func (rw *RWMutex) RLock() { rw.read.lock() }

// RUnlock is Unlock for RLock and TryRLock. It ends any one of the reader's holds
// that were taken through this value, a lost one first: see Mutex.Unlock. To end a
// certain hold, use RLockContext or RDo.
func (rw *RWMutex) RUnlock() { rw.read.unlock() }

// TryRLock is TryLock for a reader.
func (rw *RWMutex) TryRLock() bool { return rw.read.tryLock() }

// RLockContext is LockContext for a reader.
func (rw *RWMutex) RLockContext(ctx context.Context) (*Hold, error) {
	return rw.read.lockContext(ctx, true)
}

// TryRLockContext is TryLockContext for a reader.
func (rw *RWMutex) TryRLockContext(ctx context.Context) (*Hold, error) {
	return rw.read.lockContext(ctx, false)
}

// RDo is Do under the reader's lock.
func (rw *RWMutex) RDo(ctx context.Context, fn func(context.Context) error) error {
	return rw.read.do(ctx, fn)
}

// RLocker returns a Locker whose Lock and Unlock are rw's RLock and RUnlock.
func (rw *RWMutex) RLocker() sync.Locker { return (*readLocker)(rw) }

type readLocker RWMutex

func (r *readLocker) Lock()   { (*RWMutex)(r).RLock() }
func (r *readLocker) Unlock() { (*RWMutex)(r).RUnlock() }

// As is Mutex.As, for readers and writers. RLock and RUnlock through two As values of
// one RWMutex and one owner belong together too.
func (rw *RWMutex) As(o Owner) *RWMutex {
	return &RWMutex{write: rw.write.as(o), read: rw.read.as(o)}
}

// Name returns the name of the lock.
func (rw *RWMutex) Name() string { return rw.write.name() }
