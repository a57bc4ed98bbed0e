package cli

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// lease is what supervise sees of a hold.
type lease interface {
	Deadline() time.Time
	Done() <-chan struct{}
	Err() error
}

// process is what supervise does to a command.
type process interface {
	terminate() // SIGTERM
	kill()      // SIGKILL
	pass(os.Signal)
	mayRun(until time.Time) // the guard kills it then, unless mayRun comes again
	ended() <-chan struct{}
}

// errEnding: the lease could not be renewed, and the command was ended before its end.
var errEnding = errors.New("its lease could not be renewed, so the command was ended")

// supervise passes signals to the command until the command has ended. It ends the command
// while the lease still lasts: with SIGTERM grace before the deadline, and with SIGKILL
// margin before it. After the end of the hold it kills the command at once, because
// another owner may have the lock by then. It returns why the command was ended.
//
// The first lease of a hold that was waited for is shorter than those after it. Its last
// third is the grace if grace is longer, because it is renewed after its first third.
//
// It looks at the deadline when half of the lease is over at the latest, so that the guard knows of a renewal
// long before the end that it knew.
func supervise(l lease, c process, s *signals, grace, margin time.Duration) (lost error) {
	first := max(time.Until(l.Deadline())/3, 0)
	ahead := min(grace, first)
	deadline := l.Deadline()
	last := func() time.Time { return deadline.Add(-min(margin, ahead/3)) } // when it is killed, by the guard too
	next := func() time.Duration { return min(time.Until(deadline)-ahead, time.Until(deadline)/2) }
	c.mayRun(last())
	timer := time.NewTimer(next())
	defer timer.Stop()
	for gone := l.Done(); ; {
		select {
		case <-c.ended():
			return lost
		case sig := <-s.ending:
			c.pass(sig)
		case sig := <-s.other:
			c.pass(sig)
		case <-gone:
			gone = nil
			if lost == nil {
				lost = l.Err()
			}
			c.kill()
		case <-timer.C:
			renewed := l.Deadline()
			if renewed.After(deadline) && lost == nil {
				deadline, ahead = renewed, grace
				c.mayRun(last())
			}
			switch {
			case lost != nil:
				c.kill()
			case renewed.IsZero(): // the hold is gone, and Done says so
			case time.Until(deadline) > ahead:
				timer.Reset(next())
			default:
				lost = fmt.Errorf("%w (SIGTERM %v before the end of the lease)", errEnding, ahead.Round(time.Millisecond))
				c.terminate()
				timer.Reset(time.Until(last()))
			}
		}
	}
}
