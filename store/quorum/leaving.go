package quorum

import (
	"context"
	"sync"
	"time"
)

// leaving is the releases that are on their way to a node, by name. A request of the handle that overtook one would get
// a place there instead of a vote.
type leaving struct {
	names sync.Map // the chan struct{} of the last release of a name; closed when it is answered
}

// begin notes a release, until end is called.
func (l *leaving) begin(name string) (end func()) {
	done := make(chan struct{})
	l.names.Store(name, done)
	return func() {
		close(done)
		l.names.CompareAndDelete(name, done)
	}
}

// await returns when the last release of the name is answered, or after d.
func (l *leaving) await(ctx context.Context, name string, d time.Duration) {
	if done, ok := l.names.Load(name); ok {
		waitFor(ctx, done.(chan struct{}), d)
	}
}

// waitFor returns when done is closed, when ctx ends, or after d.
func waitFor(ctx context.Context, done <-chan struct{}, d time.Duration) {
	select {
	case <-done:
	case <-ctx.Done():
	case <-time.After(d):
	}
}
