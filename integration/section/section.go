// Package section writes what a run has measured into a document, between two
// marks that are there already:
//
//	<!-- name -->
//	...
//	<!-- /name -->
package section

import (
	"fmt"
	"os"
	"strings"
)

// Write replaces what is between the marks of a section. It fails if the marks
// are not there, each once and in order.
func Write(path, name, text string) error {
	document, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+name+" -->", "<!-- /"+name+" -->"
	before, rest, ok := strings.Cut(string(document), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed || strings.Contains(after, begin) {
		return fmt.Errorf("%s has no section %q", path, name)
	}
	document = []byte(before + begin + "\n" + strings.TrimSpace(text) + "\n" + end + after)
	return os.WriteFile(path, document, 0o644)
}

// Table is a table in Markdown.
func Table(head []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) {
		b.WriteByte('|')
		for _, cell := range cells {
			b.WriteString(" " + strings.ReplaceAll(cell, "|", "\\|") + " |")
		}
		b.WriteByte('\n')
	}
	line(head)
	b.WriteString(strings.Repeat("|---", len(head)) + "|\n")
	for _, row := range rows {
		line(row)
	}
	return b.String()
}
