package cli

import (
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
}

// catchSignals begins to catch signals. A signal that this process was told to ignore,
// by nohup for example, stays ignored.
func catchSignals() *signals {
	s := &signals{ending: make(chan os.Signal, 16), other: make(chan os.Signal, 16)}
	catch := func(c chan os.Signal, list []os.Signal) {
		if list = slices.DeleteFunc(slices.Clone(list), signal.Ignored); len(list) > 0 {
			signal.Notify(c, list...)
		}
	}
	catch(s.ending, endingSignals)
	catch(s.other, otherSignals)
	return s
}

func (s *signals) stop() {
	signal.Stop(s.ending)
	signal.Stop(s.other)
}

// interrupted is the cause of a call that a signal has ended.
type interrupted struct{ os.Signal }

func (i interrupted) Error() string { return fmt.Sprintf("ended by %v", i.Signal) }

func (i interrupted) number() syscall.Signal {
	n, _ := i.Signal.(syscall.Signal)
	return n
}
