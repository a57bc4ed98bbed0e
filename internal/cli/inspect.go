package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strconv"

	"github.com/dlock-go/dlock/internal/lockview"
)

var inspectCommand = command{
	name: "inspect", args: "NAME", short: "show the holders and the queue of one lock",
	long: `Shows the holders with their tokens, and the waiters in the order in which they are served.
Ids and owners are cut to six characters: whole, they are the right to release and to re-enter.
`,
	setup: func(p *Program, f *flag.FlagSet) action {
		s := p.storeFlag(f)
		asJSON := f.Bool("json", false, "print JSON")
		return func(ctx context.Context, args []string) (int, error) {
			name, err := one(args)
			if err != nil {
				return 0, err
			}
			client, end, err := s.client(ctx, nil)
			if err != nil {
				return 0, err
			}
			defer end()
			lock, err := lockview.New(client).Lock(ctx, name)
			if err != nil {
				return 0, err
			}
			if *asJSON {
				return exitOK, p.printJSON(lock)
			}
			return exitOK, describe(p.Stdout, lock, false)
		}
	},
}

func one(args []string) (string, error) {
	if len(args) != 1 {
		return "", usage("want one name, and there are %d arguments", len(args))
	}
	return args[0], nil
}

// describe prints a lock. seen adds for how long each entry has been seen.
func describe(w io.Writer, lock lockview.Lock, seen bool) error {
	if len(lock.Holders)+len(lock.Queue) == 0 {
		_, err := fmt.Fprintf(w, "%s is free\n", lock.Name)
		return err
	}
	heading := []string{"", "MODE", "TOKEN", "LABEL", "OWNER", "ID", "LEASE"}
	if seen {
		heading = append(heading, "SEEN FOR")
	}
	rows := [][]string{heading}
	add := func(role string, e lockview.Entry) {
		token := "-"
		if e.Token != 0 {
			token = strconv.FormatUint(e.Token, 10)
		}
		row := []string{role, e.Mode, token, label(e.Label), e.Owner, e.ID, short(e.Remaining)}
		if seen {
			row = append(row, short(e.Seen))
		}
		rows = append(rows, row)
	}
	for _, e := range lock.Holders {
		add("holder", e)
	}
	for i, e := range lock.Queue {
		add(fmt.Sprint("waiter ", i+1), e)
	}
	fmt.Fprintf(w, "%s: %s, %s\n", lock.Name, count(len(lock.Holders), "holder"), count(len(lock.Queue), "waiter"))
	return table(w, rows)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
