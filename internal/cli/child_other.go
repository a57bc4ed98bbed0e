//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package cli

import (
	"context"
	"flag"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Systems without process groups: the command alone is ended, without a warning before it.
var (
	endingSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}
	otherSignals  []os.Signal
	pipeSignals   []os.Signal
	stopSignals   []os.Signal
	errNoFile     = fs.ErrNotExist
)

type terminal struct{}

func (*terminal) end()                              {}
func (*terminal) keepRunning(_, _ int, _ io.Writer) {}

func writeOn() {}

func (interrupt) pass() {}

func (c *child) group(io.Reader) *terminal { return nil }
func (c *child) terminate()                {}
func (c *child) kill()                     { c.cmd.Process.Kill() }
func (c *child) pass(s os.Signal)          { c.cmd.Process.Signal(s) }
func (c *child) interrupted() interrupt    { return notInterrupted }
func (c *child) status() int               { return c.cmd.ProcessState.ExitCode() }

// guard needs process groups.
type guard struct{}

func startGuard(string) (*guard, error) { return nil, nil }
func (*guard) group() (int, error)      { return 0, nil }
func (*guard) dismiss()                 {}
func (*guard) watch(int)                {}
func (*guard) mayRun(time.Time)         {}

var guardCommand = command{name: "guard", hidden: true, setup: func(*Program, *flag.FlagSet) action {
	return func(context.Context, []string) (int, error) { return 0, usage("this system has no process groups") }
}}
