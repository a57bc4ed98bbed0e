package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/dlock-go/dlock/internal/lockview"
)

// show returns a name or a label for a terminal: quoted if it has bytes that do not print,
// since it comes from any process and could have control sequences.
func show(text string) string { return lockview.Show(text) }

// label is show for labels, which are empty or have spaces.
func label(text string) string {
	if text == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

func (p *Program) printJSON(v any) error {
	e := json.NewEncoder(p.Stdout)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// table prints rows in columns. The first row is the heading.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	return t.Flush()
}

// short is a duration in milliseconds for people: 850ms, 12s, 3m20s, 2h05m.
func short(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return d.String()
	case d < time.Minute:
		return d.Truncate(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
}
