package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// signals are the signals that dlock run passes on.
type signals struct {
	ending chan os.Signal // those that end a call that waits for the lock
	other  chan os.Signal
	unread chan os.Signal // what is to do nothing
}

// catchSignals begins to catch signals. SIGHUP and SIGINT stay ignored if this process was told to ignore
// them, by nohup for example. Go does not say so of other signals.
func catchSignals() *signals {
	s := &signals{ending: make(chan os.Signal, 16), other: make(chan os.Signal, 16), unread: make(chan os.Signal, 1)}
	catch(s.ending, endingSignals)
	catch(s.other, otherSignals)
	catch(s.unread, pipeSignals)
	return s
}

func catch(c chan os.Signal, list []os.Signal) {
	if list = slices.DeleteFunc(slices.Clone(list), signal.Ignored); len(list) > 0 {
		signal.Notify(c, list...)
	}
}

// keepRenewing has Ctrl-Z and its like not stop this process. Ctrl-Z does not reach the command, which is
// in another process group, and the command would go on without the lock. Refused: to ignore
// the signal, because the command would inherit that.
func (s *signals) keepRenewing() { catch(s.unread, stopSignals) }

func (s *signals) stop() {
	signal.Stop(s.ending)
	signal.Stop(s.other)
	signal.Stop(s.unread)
}

// watch returns a context that ends with the next ending signal, with the cause interrupted.
// Other signals do nothing. unwatch leaves later signals to the next reader.
func (s *signals) watch(ctx context.Context) (watched context.Context, unwatch func()) {
	watched, cancel := context.WithCancelCause(ctx)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case sig := <-s.ending:
				cancel(interrupted{sig})
				return
			case <-s.other: // for the command, which does not run yet
			case <-stop:
				cancel(nil)
				return
			}
		}
	}()
	return watched, func() { close(stop); <-stopped }
}

// interrupted is the cause of a call that a signal has ended.
type interrupted struct{ os.Signal }

func (i interrupted) Error() string { return fmt.Sprintf("ended by %v", i.Signal) }

func (i interrupted) number() syscall.Signal {
	n, _ := i.Signal.(syscall.Signal)
	return n
}
