package cli

import (
	"context"
	"flag"
	"fmt"
	"strconv"

	"github.com/dlock-go/dlock/internal/lockview"
)

var listCommand = command{
	name: "list", args: "[TEXT]", short: "show the locks that are held or waited for",
	long: `Shows each lock whose name contains TEXT: its mode, the label of a holder, how many wait, and how
long the lease lasts unless it is renewed.
`,
	setup: func(p *Program, f *flag.FlagSet) action {
		s := p.storeFlag(f)
		asJSON := f.Bool("json", false, "print one JSON object a line")
		names := f.Bool("names", false, "print names only, which asks the store once")
		limit := f.Int("limit", 1000, "show at most this `number` of locks, 0 for all")
		return func(ctx context.Context, args []string) (int, error) {
			text, err := atMostOne(args)
			if err != nil {
				return 0, err
			}
			if *limit < 0 {
				return 0, usage("--limit is negative")
			}
			client, end, err := s.client(ctx, nil)
			if err != nil {
				return 0, err
			}
			defer end()
			view := lockview.New(client)
			found, err := view.Names(ctx, text)
			if err != nil {
				return 0, err
			}
			shown := found
			if *limit > 0 {
				shown = found[:min(*limit, len(found))]
			}
			if err := p.list(ctx, view, shown, *names, *asJSON); err != nil {
				return 0, err
			}
			if n := len(found) - len(shown); n > 0 {
				fmt.Fprintf(p.Stderr, "dlock list: %d more; give a text or --limit=0\n", n)
			}
			return exitOK, nil
		}
	},
}

func atMostOne(args []string) (string, error) {
	switch len(args) {
	case 0:
		return "", nil
	case 1:
		return args[0], nil
	}
	return "", usage("unexpected argument %q", args[1])
}

func (p *Program) list(ctx context.Context, view *lockview.View, names []string, namesOnly, asJSON bool) error {
	if namesOnly {
		for _, name := range names {
			if asJSON {
				if err := p.printJSON(map[string]string{"name": lockview.Show(name), "key": lockview.Key(name)}); err != nil {
					return err
				}
			} else if _, err := fmt.Fprintln(p.Stdout, show(name)); err != nil {
				return err
			}
		}
		return nil
	}
	locks, err := view.Locks(ctx, names)
	if err != nil {
		return err
	}
	if asJSON {
		for _, lock := range locks {
			if err := p.printJSON(lock); err != nil {
				return err
			}
		}
		return nil
	}
	return table(p.Stdout, rows(locks))
}

// rows are the lines of a table of locks.
func rows(locks []lockview.Lock) [][]string {
	rows := [][]string{{"LOCK", "MODE", "HOLDER", "WAITERS", "LEASE"}}
	for _, lock := range locks {
		switch {
		case lock.Error != "":
			rows = append(rows, []string{lock.Name, "?", "error: " + lock.Error})
		case len(lock.Holders) == 0:
			rows = append(rows, []string{lock.Name, "free", "-", strconv.Itoa(len(lock.Queue))})
		default:
			holder := label(lock.Holders[0].Label)
			if n := len(lock.Holders) - 1; n > 0 {
				holder += fmt.Sprintf(" and %d more", n)
			}
			rows = append(rows, []string{
				lock.Name, lock.Holders[0].Mode, holder, strconv.Itoa(len(lock.Queue)), short(lock.Holders[0].Remaining),
			})
		}
	}
	return rows
}
