package peers

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/integration/section"
)

// table is what the reports say, in Markdown.
func table(t testing.TB, reports []*report) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "Leases of %v, %s, %d processors. Times in milliseconds, the median and the worst.\n\n", lease, runtime.Version(), runtime.NumCPU())
	head := []string{
		"Library", "Two hold at once", "Runs with that", "Not free 1 s after a lost reply: cut, swallowed",
		"Free after: cut, swallowed", "Let in after a lost wake-up", "Tokens when all keys are lost",
	}
	var rows [][]string
	for _, r := range reports {
		rows = append(rows, []string{
			r.title(t), r.overlapped(), of(over(r.overlaps, 0), len(r.overlaps)),
			of(over(r.cut, time.Second), len(r.cut)) + ", " + of(over(r.swallow, time.Second), len(r.swallow)),
			r.limited(r.cut) + ", " + r.limited(r.swallow), r.woken(), r.order(),
		})
	}
	b.WriteString(section.Table(head, rows) + "\n")
	for _, r := range reports {
		if r.use != "" {
			fmt.Fprintf(&b, "- %s: %s.\n", r.name, r.use)
		}
		if r.again > 0 {
			fmt.Fprintf(&b, "- %s: %d runs were made again, in which the machine had stopped the holder for longer than the margin and the overlap.\n", r.name, r.again)
		}
	}
	return b.String()
}

func (r *report) title(t testing.TB) string {
	if r.dlock {
		return "**" + r.name + "**"
	}
	name, way, _ := strings.Cut(r.name, ",")
	return strings.TrimSuffix(name+" "+version(t, r.module)+","+way, ",")
}

func (r *report) overlapped() string {
	text := spread(r.overlaps)
	if r.untold > 0 {
		text += fmt.Sprintf(", in %s never told (watched for %v)", of(r.untold, len(r.overlaps)), watched)
	}
	return text
}

// limited is a spread of times that were watched no longer than blocked.
func (r *report) limited(all []time.Duration) string {
	if n := over(all, blocked-1); n > 0 {
		return fmt.Sprintf("%s, in %s not within %v", spread(all), of(n, len(all)), blocked)
	}
	return spread(all)
}

func (r *report) woken() string {
	text := r.limited(r.wakeups)
	if r.polls {
		text += " (polls)"
	}
	if r.failed > 0 {
		text += fmt.Sprintf(", in %s an error", of(r.failed, r.failed+len(r.wakeups)))
	}
	return text
}

func (r *report) order() string {
	switch {
	case r.tokens == 0:
		return "none"
	case r.grown == r.tokens:
		return "grow on"
	}
	return fmt.Sprintf("fall in %s", of(r.tokens-r.grown, r.tokens))
}

// over counts those greater than limit.
func over(all []time.Duration, limit time.Duration) (n int) {
	for _, d := range all {
		if d > limit {
			n++
		}
	}
	return n
}

func of(n, all int) string { return fmt.Sprintf("%d of %d", n, all) }

// spread is the median and the worst of what is sorted.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "not run"
	}
	return fmt.Sprintf("%d / %d", all[len(all)/2].Milliseconds(), all[len(all)-1].Milliseconds())
}

// introduction is what the file begins with if there is none.
const introduction = `# Reliability

What has been tried, and what was measured. Each section says how to repeat it.

## Beside other libraries

The same faults on the same servers, with the same lease, for each library. The
wire of a holder loses everything while a rival waits: for how long do both hold,
from the grant of the rival to when the holder is told; it is negative if that was
before. The reply to an acquire is lost, cut off with its connection or swallowed,
and the caller gives up: when is the lock free for a rival. A waiter loses its
connections and the holder unlocks before it is back: when is it let in. The
server loses all keys: do tokens grow on. What a library leaves to its caller is
done once as it comes and once as a careful caller would.

<!-- peers -->
<!-- /peers -->
`

// writeTable puts the table into its section of the file, and leaves the rest of
// it alone.
func writeTable(t testing.TB, file, table string) {
	t.Helper()
	if filepath.Base(file) == file {
		file = filepath.Join("..", "..", "docs", file)
	}
	if _, err := os.Stat(file); os.IsNotExist(err) {
		if err := os.WriteFile(file, []byte(introduction), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	command := fmt.Sprintf("go test -run=TestPeers -timeout=1h -peers.only=%s -peers.runs=%d -peers.write=%s", *only, *runs, filepath.Base(file))
	if err := section.Write(file, "peers", "Written by `"+command+"` in `integration/peers`.\n\n"+table); err != nil {
		t.Fatal(err)
	}
}
