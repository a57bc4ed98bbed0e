package repository

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each link in the documents leads to a file that exists, and to a heading that exists if it names one.
func TestLinks(t *testing.T) {
	links := 0
	for _, document := range documents(t) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			file, heading, _ := strings.Cut(m[1], "#")
			linked := document
			if file != "" {
				linked = filepath.Join(filepath.Dir(document), file)
			}
			if _, err := os.Stat(linked); err != nil {
				t.Errorf("%s: link: %v", document, err)
			} else if heading != "" && !slices.Contains(headings(t, linked), heading) {
				t.Errorf("%s: link: no heading %s", document, m[1])
			}
		}
	}
	if links < 100 {
		t.Errorf("found only %d links to files", links)
	}
}

// documents returns the paths of all Markdown files.
func documents(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case !d.IsDir() && filepath.Ext(path) == ".md":
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// A page for users begins with its readers and what they can do after reading.
func TestPagesBeginWithTheirReaders(t *testing.T) {
	pages := regexp.MustCompile(`^docs/(guides/.*|get-started|moving|faq|reference|reliability|reliability-history|benchmarks|planted-faults|quorum|writing-a-store)\.md$`)
	found := 0
	for _, path := range documents(t) {
		if !pages.MatchString(filepath.ToSlash(path)) {
			continue
		}
		found++
		text, _ := document(t, path)
		first := strings.ReplaceAll(strings.SplitN(text, "\n\n", 3)[1], "\n", " ")
		if !strings.HasPrefix(first, "For ") || !regexp.MustCompile(`After reading|On this page|Each answer`).MatchString(first) {
			t.Errorf("%s begins with %q", path, first)
		}
	}
	if found < 15 {
		t.Errorf("found only %d pages", found)
	}
}

// The README leads with one click, by name, to what newcomers look for.
func TestReadmeLeadsTo(t *testing.T) {
	text, _ := document(t, "README.md")
	for _, link := range []string{
		"[Who holds?](docs/faq.md#who-holds-a-lock)", "[Force unlock](docs/faq.md#how-do-i-force-an-unlock)",
		"[Testing](docs/guides/testing.md)", "[Graceful shutdown](docs/guides/shutdown.md)", "[Nested locks](docs/guides/nested-locks.md)",
		"[Moving](docs/moving.md)", "[Fencing](docs/guides/fencing.md)",
	} {
		if !strings.Contains(text, link) {
			t.Errorf("the README has no link %s", link)
		}
	}
}

// The rates in the README are those of docs/benchmarks.md.
func TestReadmeFigures(t *testing.T) {
	text, _ := document(t, "README.md")
	measured, _ := document(t, "docs/benchmarks.md")
	found := 0
	for _, row := range regexp.MustCompile(`(?m)^\| (Locks|Hand-overs)/s, ([^|]*)\|(.*)$`).FindAllStringSubmatch(text, -1) {
		for _, figure := range regexp.MustCompile(`[\d,]*\d`).FindAllString(row[3], -1) {
			found++
			if !regexp.MustCompile(`\| ` + figure + `(\.0)? \(`).MatchString(measured) {
				t.Errorf("%s/s, %s: docs/benchmarks.md has no %s", row[1], strings.TrimSpace(row[2]), figure)
			}
		}
	}
	if found < 15 {
		t.Errorf("found only %d figures", found)
	}
}

// headings returns the headings of a document in the form that links use.
func headings(t *testing.T, document string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if title := strings.TrimLeft(line, "#"); title != line {
			name := regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			names = append(names, strings.ReplaceAll(name, " ", "-"))
		}
	}
	return names
}
