package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/lockview"
)

var watchCommand = command{
	name: "watch", args: "[NAME]", short: "show one lock, or all of them, live",
	long: `With a NAME it shows the holders and waiters of that lock, and for how long each of them is there. Without one it shows the locks that list shows. On a terminal it redraws the screen. Elsewhere,
and with --json, it prints all of it again when something has changed. Ctrl-C ends it.
`,
	setup: func(p *Program, f *flag.FlagSet) action {
		s := p.storeFlag(f)
		w := &watch{p: p}
		f.BoolVar(&w.json, "json", false, "print one JSON object for each change")
		f.DurationVar(&w.every, "every", time.Second, "look at the store after this `duration` again")
		f.IntVar(&w.limit, "limit", 50, "show at most this `number` of locks")
		return func(ctx context.Context, args []string) (status int, err error) {
			if w.name, err = atMostOne(args); err != nil {
				return 0, err
			}
			if len(args) == 1 && w.name == "" {
				return 0, usage("the name is empty")
			}
			if w.every < 100*time.Millisecond || w.limit < 1 {
				return 0, usage("--every has to be 100ms or more, and --limit 1 or more")
			}
			client, end, err := s.client(ctx, nil)
			if err != nil {
				return 0, err
			}
			defer end()
			w.view = lockview.New(client)
			return exitOK, w.run(ctx)
		}
	},
}

// watch is one dlock watch.
type watch struct {
	p     *Program
	view  *lockview.View
	name  string // "" for all
	every time.Duration
	limit int
	json  bool
	last  string // what was shown last, without times
}

func (w *watch) run(ctx context.Context) error {
	screen := isTerminal(w.p.Stdout) && !w.json
	for {
		locks, more, err := w.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, dlock.ErrInvalidName) {
			return err
		}
		if err := w.show(locks, more, err, screen); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.every):
		}
	}
}

// look returns the locks to show, and how many there are beside them.
func (w *watch) look(ctx context.Context) (locks []lockview.Lock, more int, err error) {
	if w.name != "" {
		lock, err := w.view.Lock(ctx, w.name)
		return []lockview.Lock{lock}, 0, err
	}
	names, err := w.view.Names(ctx, "")
	if err != nil {
		return nil, 0, err
	}
	shown := names[:min(len(names), w.limit)]
	locks, err = w.view.Locks(ctx, shown)
	return locks, len(names) - len(shown), err
}

func (w *watch) show(locks []lockview.Lock, more int, err error, screen bool) error {
	fingerprint := fingerprint(locks, more, err)
	if !screen && fingerprint == w.last {
		return nil
	}
	w.last = fingerprint
	var out bytes.Buffer
	if screen {
		out.WriteString("\x1b[H\x1b[2J") // to the upper left, and clear
	}
	switch {
	case w.json:
		event := map[string]any{"time": time.Now().Format(time.RFC3339Nano)}
		if err != nil {
			event["error"] = err.Error()
		} else {
			event["locks"], event["more"] = locks, more
		}
		return w.p.printJSON(event)
	case err != nil:
		fmt.Fprintf(&out, "%s  %v\n", time.Now().Format(time.TimeOnly), err)
	default:
		fmt.Fprintf(&out, "%s\n", time.Now().Format(time.TimeOnly))
		w.text(&out, locks, more)
	}
	_, err = w.p.Stdout.Write(out.Bytes())
	return err
}

func (w *watch) text(out io.Writer, locks []lockview.Lock, more int) {
	if w.name != "" {
		describe(out, locks[0])
		return
	}
	table(out, rows(locks))
	if more > 0 {
		fmt.Fprintf(out, "%d more\n", more)
	}
}

// fingerprint is the same for two looks that differ in times only.
func fingerprint(locks []lockview.Lock, more int, err error) string {
	var b bytes.Buffer
	fmt.Fprintln(&b, more, err)
	for _, lock := range locks {
		fmt.Fprintln(&b, lock.Key, lock.Error)
		for _, list := range [][]lockview.Entry{lock.Holders, lock.Queue} {
			for _, e := range list {
				fmt.Fprintln(&b, e.ID, e.Token, e.Mode)
			}
			fmt.Fprintln(&b)
		}
	}
	return b.String()
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
