package dlock

import (
	"context"
	"sync"
)

// RWMutex is a lock that any number of readers hold, or one writer. It is the
// same lock as the Mutex of its name, which is its writers' side. It is safe
// for concurrent use. All that is said of [Mutex] holds here too.
//
// Readers and writers are served in the order in which they came; a reader does
// not pass a waiting writer, unless its owner holds the lock already. Within the
// bounds of Options.LocalHandoffs the writers of one process may pass those who wait
// in others, and its readers may join one of them who reads already.
//
// An owner who holds the writer's lock may take the reader's lock under it, and
// may then unlock the writer's first: a downgrade, in which no other writer
// comes between. The other way round, taking the writer's lock under one's own
// reader's lock, works if no one else reads and fails at once with ErrUpgrade
// otherwise, for two readers who wait for each other to leave would wait for ever.
type RWMutex struct{ write, read locker }

// Lock is Mutex.Lock: it waits for all readers and writers to leave. Under
// the owner's own reader's lock (see As) it panics if others read too.
func (rw *RWMutex) Lock() { rw.write.lock() }

// Unlock is Mutex.Unlock, for a Lock or TryLock.
func (rw *RWMutex) Unlock() { rw.write.unlock() }

// TryLock is Mutex.TryLock. It is false also where Lock would be an upgrade
// that is refused.
func (rw *RWMutex) TryLock() bool { return rw.write.tryLock() }

// LockContext is Mutex.LockContext, and may also fail with ErrUpgrade.
func (rw *RWMutex) LockContext(ctx context.Context) (*Hold, error) { return rw.write.lockContext(ctx) }

// TryLockContext is Mutex.TryLockContext, and may also fail with ErrUpgrade.
func (rw *RWMutex) TryLockContext(ctx context.Context) (*Hold, error) {
	return rw.write.tryLockContext(ctx)
}

// Do is Mutex.Do under the writer's lock.
func (rw *RWMutex) Do(ctx context.Context, fn func(context.Context) error) error {
	return rw.write.do(ctx, fn)
}

// RLock is Lock for a reader: it waits for the writer, and for writers who
// came before it, to leave. Each RLock is an owner of its own, so a nested one
// can deadlock with a writer between; As gives an RWMutex that nests.
func (rw *RWMutex) RLock() { rw.read.lock() }

// RUnlock is Unlock for an RLock or TryRLock.
func (rw *RWMutex) RUnlock() { rw.read.unlock() }

// TryRLock is TryLock for a reader.
func (rw *RWMutex) TryRLock() bool { return rw.read.tryLock() }

// RLockContext is LockContext for a reader.
func (rw *RWMutex) RLockContext(ctx context.Context) (*Hold, error) { return rw.read.lockContext(ctx) }

// TryRLockContext is TryLockContext for a reader.
func (rw *RWMutex) TryRLockContext(ctx context.Context) (*Hold, error) {
	return rw.read.tryLockContext(ctx)
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

// As is Mutex.As, for readers and writers alike.
func (rw *RWMutex) As(o Owner) *RWMutex {
	return &RWMutex{write: rw.write.as(o), read: rw.read.as(o)}
}

// Name returns the name of the lock.
func (rw *RWMutex) Name() string { return rw.write.config.Name }
