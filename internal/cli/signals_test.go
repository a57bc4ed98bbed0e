package cli

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A signal that comes while the lock is waited for is not for the command, which does not run yet.
func TestSignalsOfTheWaitAreNotPassed(t *testing.T) {
	s := &signals{ending: make(chan os.Signal), other: make(chan os.Signal)} // without room: what is sent is read
	send := func(to chan os.Signal, sig os.Signal) {
		select {
		case to <- sig:
		case <-time.After(10 * time.Second):
			t.Fatalf("nothing reads %v", sig)
		}
	}
	watched, unwatch := s.watch(t.Context())
	defer unwatch()
	send(s.other, syscall.SIGHUP)
	send(s.other, syscall.SIGHUP)
	assert.NoError(t, watched.Err())
	send(s.ending, syscall.SIGTERM)
	<-watched.Done()
	assert.ErrorAs(t, context.Cause(watched), new(interrupted))
}
