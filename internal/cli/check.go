package cli

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/postgres"
	"github.com/dlock-go/dlock/store/redis"
)

var checkCommand = command{
	name: "check", short: "look for settings of the store that endanger locks",
	long: `Prints a line for each thing that costs locks now or later, and what to do about it. It takes and
releases a lock of a random name. The exit status is 1 if there is anything to say, and 125 if a
server cannot be opened, or the servers of a quorum cannot be opened together.
`,
	setup: func(p *Program, f *flag.FlagSet) action {
		s := p.storeFlag(f)
		asJSON := f.Bool("json", false, "print one JSON object for each warning")
		limit := f.Duration("timeout", 30*time.Second, "give up on a server after this `duration`")
		return func(ctx context.Context, args []string) (int, error) {
			if len(args) > 0 {
				return 0, usage("unexpected argument %q", args[0])
			}
			urls, err := s.resolve()
			if err != nil {
				return 0, err
			}
			found, opened := p.check(ctx, strings.Fields(urls), *limit)
			status, err := p.report(found, *asJSON)
			if err == nil && !opened {
				status = exitFailed
			}
			return status, err
		}
	},
}

// warning is one thing that a check found.
type warning struct {
	Topic  string `json:"topic"`
	Server string `json:"server,omitempty"`
	Text   string `json:"text"`
}

// check checks one server after the other, each for so long at most. opened is false if it could not open one of them.
func (p *Program) check(ctx context.Context, urls []string, limit time.Duration) (found []warning, opened bool) {
	opened = true
	for i, url := range urls {
		var ofServer []warning
		ctx, cancel := context.WithTimeout(ctx, limit)
		st, err := p.open(ctx, url)
		if err != nil {
			opened = false
			ofServer = []warning{{Topic: "unreachable", Text: fmt.Sprintf("it cannot be opened: %v", err)}}
		} else {
			ofServer = checkStore(ctx, st)
			st.Close()
		}
		cancel()
		for _, w := range ofServer {
			if w.Server == "" && len(urls) > 1 {
				w.Server = fmt.Sprint("server ", i+1)
			}
			found = append(found, w)
		}
	}
	if opened && len(urls) > 1 {
		if err := p.tryOpen(ctx, strings.Join(urls, " "), limit); err != nil {
			opened = false
			found = append(found, warning{Topic: "quorum", Text: fmt.Sprintf("the servers cannot be opened together: %v", err)})
		}
	}
	return found, opened
}

// tryOpen opens a store and closes it.
func (p *Program) tryOpen(ctx context.Context, url string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	st, err := p.open(ctx, url)
	if err == nil {
		st.Close()
	}
	return err
}

// checkStore asks a store that has a Check of its own. Of the others it takes and releases a
// lock.
func checkStore(ctx context.Context, st store.Store) (found []warning) {
	switch st := st.(type) {
	case *redis.Store:
		for _, w := range st.Check(ctx) {
			found = append(found, warning{w.Topic, w.Node, w.Text})
		}
	case *postgres.Store:
		for _, w := range st.Check(ctx) {
			found = append(found, warning{Topic: w.Topic, Text: w.Text})
		}
	default:
		if err := tryLock(ctx, st); err != nil {
			found = append(found, warning{Topic: "rights", Text: fmt.Sprintf("a lock cannot be taken and released: %v", err)})
		}
	}
	return found
}

func (p *Program) report(found []warning, asJSON bool) (int, error) {
	for _, w := range found {
		if asJSON {
			if err := p.printJSON(w); err != nil {
				return 0, err
			}
			continue
		}
		where := w.Topic
		if w.Server != "" {
			where += " (" + w.Server + ")"
		}
		if err := oneLine(p.Stdout, where, w.Text); err != nil {
			return 0, err
		}
	}
	if len(found) > 0 {
		return exitNo, nil
	}
	if !asJSON {
		fmt.Fprintln(p.Stdout, "nothing found that endangers locks")
	}
	return exitOK, nil
}

func oneLine(w io.Writer, where, text string) error {
	_, err := fmt.Fprintf(w, "%s: %s\n", where, label(strings.ReplaceAll(text, "\n", "; ")))
	return err
}

// tryLock takes a lock of a random name and gives it back.
func tryLock(ctx context.Context, st store.Store) error {
	client, err := dlock.New(st, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	hold, err := client.Mutex("dlock check " + rand.Text()).LockContext(ctx)
	if err != nil {
		return err
	}
	return hold.Unlock()
}
