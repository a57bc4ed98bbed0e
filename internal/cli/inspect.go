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
			return exitOK, describe(p.Stdout, lock)
		}
	},
}

func one(args []string) (string, error) {
	if len(args) != 1 {
		return "", usage("want one name, and there are %d arguments", len(args))
	}
	return args[0], nil
}

// describe prints a lock.
func describe(w io.Writer, lock lockview.Lock) error {
	if len(lock.Holders)+len(lock.Queue) == 0 {
		_, err := fmt.Fprintf(w, "%s is free\n", lock.Name)
		return err
	}
	rows := [][]string{{"", "MODE", "TOKEN", "LABEL", "OWNER", "ID", "LEASE", "FOR"}}
	add := func(role string, e lockview.Entry) {
		token := "-"
		if e.Token != 0 {
			token = strconv.FormatUint(e.Token, 10)
		}
		age := "-"
		if e.Age > 0 {
			age = short(e.Age)
		}
		rows = append(rows, []string{role, e.Mode, token, label(e.Label), label(e.Owner), label(e.ID), short(e.Remaining), age})
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
