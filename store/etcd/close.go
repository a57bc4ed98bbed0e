package etcd

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// taskGroup counts the goroutines of a handle. None begins after wait.
type taskGroup struct {
	mu     sync.Mutex
	wg     sync.WaitGroup
	closed bool
}

// Go runs f, unless the group is closed, and says whether it does.
func (g *taskGroup) Go(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.wg.Go(f)
	}
	return !g.closed
}

func (g *taskGroup) wait() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.wg.Wait()
}

// Listen implements [store.Store]. Sinks are called from one goroutine, one after the other: one that blocks
// delays the other sinks' events, but no call.
func (s *Store) Listen(sink func(store.Event)) (stop func()) { return s.sinks.Listen(sink) }

// Close implements [store.Store]. It ends the handle's watches, revokes those of its leases that nothing hangs
// on, leaves the others to time, and closes the client if [Open] made it. It takes up to two seconds if the
// server does not answer.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.stop()
		s.sinks.Close()
		s.tasks.wait()
		if s.ownWatcher {
			s.watcher.Close()
		}
		s.leases.revokeUnused()
		if s.owned {
			s.client.Close()
		}
	})
	return nil
}

// revokeUnused ends the leases that no record may hang on.
func (ls *leases) revokeUnused() {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	var wg sync.WaitGroup
	for _, l := range ls.list() {
		ls.mu.Lock()
		unused := l.keys == 0
		if unused {
			l.until = time.Time{} // a call that is still under way takes another one
		}
		ls.mu.Unlock()
		if unused {
			wg.Go(func() { ls.s.client.Revoke(ctx, l.id) })
		}
	}
	wg.Wait()
}

// sleep waits, and reports whether ctx is still on.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
