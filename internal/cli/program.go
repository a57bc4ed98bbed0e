// Package cli is the command dlock without its process: arguments, streams and
// environment come in, and an exit status comes out.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/dlock-go/dlock/store"
)

// Program is one call of dlock.
type Program struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer // safe for concurrent use, as files are: commands and the logger write too
	Getenv         func(string) string
	Environ        func() []string
	// Open opens the store of a URL.
	Open func(ctx context.Context, url string) (store.Store, error)
	// Self is the path of this program, for the guard of dlock run; "" for no guard.
	Self string
	// Context ends what the program does. Signals end it too.
	Context context.Context
}

// New returns the program of this process.
func New() *Program {
	self, err := os.Executable()
	if err != nil {
		self = ""
	}
	return &Program{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv: os.Getenv, Environ: os.Environ,
		Open: openStore, Self: self, Context: context.Background(),
	}
}

// command is one word after dlock.
type command struct {
	name, args, short string
	long              string // what help says below the first line
	// setup declares the flags and returns what runs after they are parsed.
	setup func(p *Program, f *flag.FlagSet) action
	// raw commands get what follows the flags as it is: dlock run.
	raw    bool
	hidden bool
}

// action does a command with its arguments and returns the exit status.
type action func(ctx context.Context, args []string) (int, error)

// commands are in the order in which help shows them.
func commands() []command {
	return []command{
		runCommand, listCommand, inspectCommand, watchCommand, breakCommand, checkCommand,
		uiCommand, completionCommand(), versionCommand, helpCommand(), guardCommand,
	}
}

func find(name string) (command, bool) {
	for _, c := range commands() {
		if c.name == name {
			return c, true
		}
	}
	return command{}, false
}

// errUsage marks wrong arguments: the message is followed by a hint at help.
type errUsage struct{ text string }

func (e errUsage) Error() string { return e.text }

func usage(format string, args ...any) error { return errUsage{fmt.Sprintf(format, args...)} }

// Run does what the arguments say and returns the exit status.
func (p *Program) Run(args []string) int {
	if len(args) == 0 {
		fmt.Fprint(p.Stderr, overview())
		return exitFailed
	}
	switch args[0] {
	case "-h", "-help", "--help":
		args = append([]string{"help"}, args[1:]...)
	case "-version", "--version":
		args = []string{"version"}
	}
	c, ok := find(args[0])
	if !ok {
		fmt.Fprintf(p.Stderr, "dlock: there is no command %q; dlock help lists them\n", args[0])
		return exitFailed
	}
	return p.runCommand(c, args[1:])
}

func (p *Program) runCommand(c command, args []string) int {
	f := flag.NewFlagSet("dlock "+c.name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	act := c.setup(p, f)
	rest, err := parse(f, c.raw, args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(p.Stdout, help(p, c))
		return exitOK
	}
	if err != nil {
		return p.fail(c.name, usage("%v", err))
	}
	ctx := p.Context
	if !c.raw { // dlock run has signals of its own
		var stop func()
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
	}
	status, err := act(ctx, rest)
	if err != nil {
		return p.fail(c.name, err)
	}
	return status
}

// fail prints why dlock itself failed.
func (p *Program) fail(command string, err error) int {
	fmt.Fprintf(p.Stderr, "dlock %s: %v\n", command, err)
	if _, ok := errors.AsType[errUsage](err); ok {
		fmt.Fprintf(p.Stderr, "dlock help %s says more\n", command)
	}
	return exitFailed
}

// parse reads the flags. They may stand before and after the arguments, up to "--". Of
// a raw command they may stand before and after the first argument only.
func parse(f *flag.FlagSet, raw bool, args []string) (rest []string, err error) {
	var after []string
	for i, arg := range args {
		if arg == "--" {
			args, after = args[:i], args[i+1:]
			break
		}
	}
	for len(args) > 0 {
		if err := f.Parse(args); err != nil {
			return nil, err
		}
		if args = f.Args(); len(args) == 0 {
			break
		}
		rest, args = append(rest, args[0]), args[1:]
		if raw && (len(rest) > 1 || len(args) > 0 && !strings.HasPrefix(args[0], "-")) {
			return append(append(rest, args...), dashes(rest, args, after)...), nil
		}
	}
	return append(rest, after...), nil
}

// dashes is what follows the first "--": with the "--" itself if the command of a raw
// command began before it, because then it belongs to that command.
func dashes(rest, args, after []string) []string {
	if after == nil || len(rest)+len(args) < 2 {
		return after
	}
	return append([]string{"--"}, after...)
}
