package cli

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/internal/lockview"
)

var breakCommand = command{
	name: "break", args: "NAME", short: "take a lock away from its holders",
	long: `Removes all holds of the lock, after a question. The next waiter is granted at once, with a
greater token. A holder that still runs learns of it with its next renewal, which is up to a third of
its lease later, or when a lease without renewal ends: until then two may work. End the holder first if you can.
`,
	setup: func(p *Program, f *flag.FlagSet) action {
		s := p.storeFlag(f)
		yes := f.Bool("yes", false, "do not ask")
		asJSON := f.Bool("json", false, "print JSON; needs --yes")
		return func(ctx context.Context, args []string) (int, error) {
			name, err := one(args)
			if err != nil {
				return 0, err
			}
			if *asJSON && !*yes {
				return 0, usage("--json needs --yes")
			}
			client, end, err := s.client(ctx, nil)
			if err != nil {
				return 0, err
			}
			defer end()
			if !*yes {
				if ok, err := p.confirm(ctx, lockview.New(client), name); !ok || err != nil {
					return exitNo, err
				}
			}
			broken, err := client.Break(ctx, name)
			if err != nil {
				return 0, err
			}
			status := exitOK
			if broken == 0 {
				status = exitNo
			}
			if *asJSON {
				return status, p.printJSON(map[string]any{"name": lockview.Show(name), "key": lockview.Key(name), "broken": broken})
			}
			_, err = fmt.Fprintf(p.Stdout, "%s: %s broken\n", show(name), count(broken, "hold"))
			return status, err
		}
	},
}

// confirm shows the lock and asks. It refuses if the holders are others after the answer than
// before the question. A holder that is granted after this last look is broken too, because
// Break removes all holders of its moment.
func (p *Program) confirm(ctx context.Context, view *lockview.View, name string) (bool, error) {
	before, err := view.Lock(ctx, name)
	if err != nil {
		return false, err
	}
	if err := describe(p.Stdout, before); err != nil {
		return false, err
	}
	if len(before.Holders) == 0 {
		fmt.Fprintln(p.Stdout, "There is no hold to break.")
		return false, nil
	}
	fmt.Fprint(p.Stdout, "Its holder may still run. Break the lock? [y/N] ")
	answer, err := p.readLine(ctx)
	if err != nil {
		return false, err
	}
	if answer = strings.ToLower(answer); answer != "y" && answer != "yes" {
		fmt.Fprintln(p.Stdout, "Not broken.")
		return false, nil
	}
	after, err := view.Lock(ctx, name)
	if err != nil {
		return false, err
	}
	if lockview.StateOf(before.Holders) != lockview.StateOf(after.Holders) {
		fmt.Fprintln(p.Stdout, "Not broken: the holders have changed since the question.")
		return false, nil
	}
	return true, nil
}

// readLine reads a line until ctx ends.
func (p *Program) readLine(ctx context.Context) (string, error) {
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(p.Stdin).ReadString('\n')
		line <- strings.TrimSpace(text)
	}()
	select {
	case text := <-line:
		return text, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
