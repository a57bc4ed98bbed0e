package quorum

import (
	"context"
	"sync"
	"time"
)

// leaving is the releases that are on their way to a node, by name. A request of the handle that overtook one would get
// a place there instead of a vote.
type leaving struct {
	mu    sync.Mutex
	names map[string]chan struct{} // of the last release; closed when it is answered
}

// begin notes a release, until end is called.
func (l *leaving) begin(name string) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.names == nil {
		l.names = make(map[string]chan struct{})
	}
	done := make(chan struct{})
	l.names[name] = done
	return func() {
		close(done)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.names[name] == done {
			delete(l.names, name)
		}
	}
}

// await returns when the last release of the name is answered, or after d.
func (l *leaving) await(ctx context.Context, name string, d time.Duration) {
	l.mu.Lock()
	done := l.names[name]
	l.mu.Unlock()
	if done != nil {
		waitFor(ctx, done, d)
	}
}

// waitFor returns when done is closed, when ctx ends, or after d.
func waitFor(ctx context.Context, done <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-ctx.Done():
	case <-timer.C:
	}
}
