package main

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/integration/section"
)

// column is how a figure is shown.
type column struct {
	head string
	show func(float64) string
	most bool // only the greatest, not the median of all
}

var columns = map[string]column{
	"locks":      {head: "locks/s", show: short},
	"changes":    {head: "hand-overs/s", show: short},
	"p50":        {head: "p50", show: seconds},
	"p99":        {head: "p99", show: seconds},
	"requests":   {head: "commands per lock", show: short},
	"perChange":  {head: "commands per hand-over", show: short},
	"server":     {head: "server time per hand-over", show: seconds},
	"serverLock": {head: "server time per lock", show: seconds},
	"fairness":   {head: "most/least", show: short},
	"lost":       {head: "lost", show: whole, most: true},
	"serverCPU":  {head: "server's processor time per lock", show: seconds},
	"rate":       {head: "commands/s", show: short},
	"renewal":    {head: "commands per lock and renewal", show: short},
	"cpu":        {head: "processor", show: func(x float64) string { return short(x) + " %" }},
	"memory":     {head: "MiB", show: short},
	"goroutines": {head: "goroutines", show: whole},
}

// cell of a row.
func (c column) cell(f figures) string {
	switch {
	case len(f) == 0 || math.IsNaN(f[0]):
		return "–"
	case c.most:
		return c.show(f.greatest())
	case c.show(f.least()) == c.show(f.greatest()):
		return c.show(f.median())
	}
	return fmt.Sprintf("%s (%s – %s)", c.show(f.median()), c.show(f.least()), c.show(f.greatest()))
}

// short has about three digits.
func short(x float64) string {
	switch {
	case math.IsNaN(x):
		return "–"
	case math.IsInf(x, 0):
		return "∞"
	case x == 0:
		return "0"
	case x < 0.1:
		return fmt.Sprintf("%.4f", x)
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return whole(x)
}

// whole has its digits in groups of three.
func whole(x float64) string {
	s := fmt.Sprintf("%.0f", x)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func seconds(x float64) string {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return "–"
	case x < 1e-6:
		return short(x*1e9) + " ns"
	case x < 1e-3:
		return short(x*1e6) + " µs"
	case x < 1:
		return short(x*1e3) + " ms"
	}
	return short(x) + " s"
}

// report is the section of the document, in Markdown.
func (b *bench) report(command, versions, chart, growth string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "Written by `%s`.\n\n", command)
	fmt.Fprintf(&s, "%s, %s/%s, %d processors, which servers and clients share. %s, %s.\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), versions, strings.Join(modules(), ", "))
	fmt.Fprintf(&s, "Medians of %d repetitions of %v; in brackets the least and the greatest.\n\n", b.sizes.reps, b.sizes.time)
	if chart != "" {
		fmt.Fprintf(&s, "![Turns per second by library, on a logarithmic scale](%s)\n\n", chart)
	}
	s.WriteString("### Targets\n\n" + b.targets() + "\n")
	about := ""
	for _, sc := range b.sizes.scenarios() {
		rows := b.rowsOf(sc.id)
		if len(rows) == 0 || sc.row != "" {
			continue
		}
		fmt.Fprintf(&s, "### %s\n\n", sc.title)
		if sc.about != "" && sc.about != about {
			fmt.Fprintf(&s, "%s\n\n", sc.about)
			about = sc.about
		}
		s.WriteString(table(rows, false) + "\n")
	}
	for _, g := range growths {
		if rows := b.rowsOf(g.prefix); len(rows) > 0 {
			fmt.Fprintf(&s, "### %s\n\n%s\n\n%s\n", g.title, rows[0].scenario.about, table(rows, true))
		}
	}
	if growth != "" {
		fmt.Fprintf(&s, "![Time of the server for more and more waiters and readers](%s)\n\n", growth)
	}
	s.WriteString("### How each is used\n\n")
	for _, l := range libraries {
		if l.use != "" {
			fmt.Fprintf(&s, "- %s: %s.\n", strings.Trim(l.name, "*"), l.use)
		}
	}
	return s.String()
}

// rowsOf a scenario, or of all whose ids begin so if it ends with a dash.
func (b *bench) rowsOf(id string) (rows []*row) {
	for _, r := range b.rows {
		if r.scenario.id == id || strings.HasSuffix(id, "-") && strings.HasPrefix(r.scenario.id, id) {
			rows = append(rows, r)
		}
	}
	return rows
}

// table of rows with the same columns; of several scenarios if titled.
func table(rows []*row, titled bool) string {
	var head []string
	if titled {
		head = append(head, "")
	}
	head = append(head, "Library")
	for _, key := range rows[0].scenario.columns {
		head = append(head, columns[key].head)
	}
	var cells [][]string
	var notes strings.Builder
	stuck := map[string]int{} // the most of one row, by library
	last := ""
	for _, r := range rows {
		var line []string
		if titled {
			title := ""
			if r.scenario.title != last {
				title, last = r.scenario.row, r.scenario.title
			}
			line = append(line, title)
		}
		line = append(line, r.library.name)
		for _, key := range r.scenario.columns {
			line = append(line, columns[key].cell(r.values[key]))
		}
		cells = append(cells, line)
		switch {
		case r.missing != "":
			fmt.Fprintf(&notes, "- %s: not measured: %s.\n", r.library.name, r.missing)
		case r.errors > 0:
			fmt.Fprintf(&notes, "- %s: %s, the first: %s.\n", r.library.name, count(r.errors, "error"), r.first)
		}
		stuck[r.library.name] = max(stuck[r.library.name], r.stuck)
	}
	for _, name := range slices.Sorted(maps.Keys(stuck)) {
		if stuck[name] > 0 {
			fmt.Fprintf(&notes, "- %s: %s still waited after %v without a holder.\n", name, count(stuck[name], "goroutine"), longest)
		}
	}
	text := section.Table(head, cells)
	if notes.Len() > 0 {
		text += "\n" + notes.String()
	}
	return text
}

// modules that are measured, with versions.
func modules() (all []string) {
	for _, path := range []string{redsyncModule, redislockModule, goRedisModule, rueidisModule, etcdModule, pgxModule, pglockModule, zkModule} {
		all = append(all, strings.TrimPrefix(path, "github.com/")+" "+version(path))
	}
	slices.Sort(all)
	return all
}
