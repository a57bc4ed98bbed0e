package repository

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const faultsPage = "docs/faults.md"

// unusedRows are numbers that docs/faults.md skips.
var unusedRows = []int{108, 109, 118, 119}

var (
	// A test is a function, or a subtest that is named after a fault.
	testName   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w*)\(|\.Run\("(Fault\w*)"`)
	rowsOfTest = regexp.MustCompile(`^(?:Test|Fuzz|Benchmark)?Fault(\d+(?:And\d+)*)`)
	rowOfPage  = regexp.MustCompile(`(?m)^\| (\d+) \|(.*)\|$`)
	linkOfPage = regexp.MustCompile(`\[([^\]]*)\]\(([^)]*)\)`)
)

// Each row of docs/faults.md has a test with its number, or leads to the sentence that says why
// there is none. Each number in the name of a test is a row.
func TestFaultsPage(t *testing.T) {
	c, err := readFaults(os.DirFS("."))
	require.NoError(t, err)
	for _, problem := range c.check() {
		t.Error(problem)
	}
	assert.GreaterOrEqual(t, len(c.rows), 121, "rows of %s, of which none goes", faultsPage)
	assert.Greater(t, len(c.numbered), 80, "numbers in names of tests")
}

// The rows that planted faults name as their sources are rows of the page.
func TestPlantedFaultsNameRows(t *testing.T) {
	c, err := readFaults(os.DirFS("."))
	require.NoError(t, err)
	planted, err := os.ReadFile("integration/mutants/testdata/mutants.txt")
	require.NoError(t, err)
	found := 0
	for _, m := range regexp.MustCompile(`(?m)^(.*) \[rows? ([\d, ]*\d)`).FindAllStringSubmatch(string(planted), -1) {
		for number := range strings.SplitSeq(m[2], ", ") {
			row, err := strconv.Atoi(number)
			require.NoError(t, err, m[0])
			assert.True(t, slices.ContainsFunc(c.rows, func(r faultRow) bool { return r.number == row }), "%s: %s has no row %d", m[1], faultsPage, row)
			found++
		}
	}
	assert.Greater(t, found, 50, "numbers of rows")
}

// faultCatalogue is docs/faults.md beside the tests of all modules.
type faultCatalogue struct {
	repository fs.FS
	page       string
	rows       []faultRow
	tests      map[string]map[string]bool // names by file
	numbered   map[int][]string           // "file: name" of tests, by the rows in their names
}

type faultRow struct {
	number int
	cells  []string // fault, right behaviour, test
}

func readFaults(repository fs.FS) (*faultCatalogue, error) {
	c := &faultCatalogue{repository: repository, tests: make(map[string]map[string]bool), numbered: make(map[int][]string)}
	page, err := fs.ReadFile(repository, faultsPage)
	if err != nil {
		return nil, err
	}
	c.page = string(page)
	for _, m := range rowOfPage.FindAllStringSubmatch(c.page, -1) {
		number, err := strconv.Atoi(m[1])
		if err != nil {
			return nil, err
		}
		row := faultRow{number: number}
		for cell := range strings.SplitSeq(m[2], " | ") {
			row.cells = append(row.cells, strings.TrimSpace(cell))
		}
		c.rows = append(c.rows, row)
	}
	err = fs.WalkDir(repository, ".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, "test.go"): // faulttest.go too
			return nil
		}
		return c.readTests(file)
	})
	return c, err
}

func (c *faultCatalogue) readTests(file string) error {
	source, err := fs.ReadFile(c.repository, file)
	if err != nil {
		return err
	}
	c.tests[file] = make(map[string]bool)
	for _, m := range testName.FindAllStringSubmatch(string(source), -1) {
		name := m[1] + m[2]
		c.tests[file][name] = true
		for _, row := range rowsOf(name) {
			c.numbered[row] = append(c.numbered[row], file+": "+name)
		}
	}
	return nil
}

// rowsOf returns the numbers in a test's name: 12 and 13 for TestFault12And13SlowStore.
func rowsOf(name string) (rows []int) {
	if m := rowsOfTest.FindStringSubmatch(name); m != nil {
		for number := range strings.SplitSeq(m[1], "And") {
			row, _ := strconv.Atoi(number)
			rows = append(rows, row)
		}
	}
	return rows
}

// check returns what is wrong, with the row or the test that it is wrong with.
func (c *faultCatalogue) check() (problems []string) {
	known := make(map[int]bool)
	last := 0
	for _, row := range c.rows {
		if row.number <= last {
			problems = append(problems, fmt.Sprintf("row %d: stands after row %d", row.number, last))
		}
		for last++; last < row.number; last++ {
			if !slices.Contains(unusedRows, last) {
				problems = append(problems, fmt.Sprintf("row %d: %s does not have it", last, faultsPage))
			}
		}
		last = row.number
		known[row.number] = true
		for _, problem := range c.checkRow(row) {
			problems = append(problems, fmt.Sprintf("row %d: %s", row.number, problem))
		}
	}
	for _, row := range slices.Sorted(maps.Keys(c.numbered)) {
		if !known[row] {
			problems = append(problems, fmt.Sprintf("row %d: %s does not have it, but the name of a test: %v", row, faultsPage, c.numbered[row]))
		}
	}
	return problems
}

func (c *faultCatalogue) checkRow(row faultRow) (problems []string) {
	if len(row.cells) != 3 || slices.Contains(row.cells, "") {
		return []string{fmt.Sprintf("has the cells %q, want a fault, a right behaviour and a test", row.cells)}
	}
	cell := row.cells[2]
	tests, sentences := 0, 0
	for _, link := range linkOfPage.FindAllStringSubmatch(cell, -1) {
		target, fragment, _ := strings.Cut(link[2], "#")
		target = path.Join(path.Dir(faultsPage), target)
		var problem string
		if sentence, ok := strings.CutPrefix(link[1], `"`); ok {
			sentences++
			problem = c.checkSentence(strings.TrimSuffix(sentence, `"`), target, fragment)
		} else {
			tests++
			problem = c.checkTest(row.number, strings.Trim(link[1], "`"), target)
		}
		if problem != "" {
			problems = append(problems, problem)
		}
	}
	switch {
	case tests == 0 && len(c.numbered[row.number]) > 0:
		problems = append(problems, fmt.Sprintf("links to none of its tests: %v", c.numbered[row.number]))
	case tests+sentences == 0:
		problems = append(problems, "has no test with its number, and no sentence that says why")
	}
	return problems
}

func (c *faultCatalogue) checkTest(row int, name, file string) (problem string) {
	switch {
	case c.tests[file] == nil:
		return fmt.Sprintf("there is no file %s for %s", file, name)
	case !c.tests[file][name]:
		return fmt.Sprintf("%s has no %s", file, name)
	case !slices.Contains(rowsOf(name), row):
		return fmt.Sprintf("the name of %s does not have the number", name)
	}
	return ""
}

// checkSentence looks for a sentence in the section of a page. Line breaks and emphasis do not count.
func (c *faultCatalogue) checkSentence(sentence, file, heading string) (problem string) {
	page, err := fs.ReadFile(c.repository, file)
	if err != nil {
		return err.Error()
	}
	section, found := "", false
	for part := range strings.SplitSeq("\n"+string(page), "\n#") {
		title, text, _ := strings.Cut(strings.TrimLeft(part, "#"), "\n")
		if anchor(title) == heading {
			section, found = text, true
		}
	}
	plain := func(s string) string { return strings.Join(strings.Fields(strings.ReplaceAll(s, "**", "")), " ") }
	switch {
	case !found:
		return fmt.Sprintf("%s has no heading %q", file, heading)
	case sentence == "" || !strings.Contains(plain(section), plain(sentence)):
		return fmt.Sprintf("%s#%s does not say %q", file, heading, sentence)
	}
	return ""
}

// anchor is the form in which links name a heading.
func anchor(title string) string {
	title = strings.ToLower(strings.TrimSpace(title))
	return strings.ReplaceAll(regexp.MustCompile(`[^\w -]`).ReplaceAllString(title, ""), " ", "-")
}

// Each fault of the page or of a test's name is found, and named with its row.
func TestFaultsPageIsChecked(t *testing.T) {
	const first = "| 1 | A reply is lost. | The request is repeated. | [`TestFault01Lost`](../a/a_test.go) |\n"
	const second = "| 2 | The machine sleeps. | The token helps. | [\"Suspend of all\"](design.md#what-cannot-be-had) |\n"
	const third = "| 3 | A session ends. | The loss is told. | [\"More.\"](design.md#else) |\n"
	const sources = "package a\n\nfunc TestFault01Lost(t *testing.T) {}\n\nfunc TestOther(t *testing.T) {}\n"
	const design = "# Design\n\nA suspend.\n\n## What cannot be had\n\n* **Suspend of\n  all** the machine.\n\n## Else\n\nMore.\n"
	for name, tc := range map[string]struct{ page, source, want string }{
		"right":                         {first + second + third, sources, ""},
		"several rows in one name":      {first + "| 2 | f | b | [`TestFault01And02`](../a/a_test.go) |\n", sources + "func TestFault01And02(t *testing.T) {}\n", ""},
		"subtest":                       {first + "| 2 | f | b | [`Fault02Sub`](../a/a_test.go) |\n", sources + "\tt.Run(\"Fault02Sub\", nil)\n", ""},
		"subtest without a row":         {first, sources + "\tt.Run(\"Fault02Sub\", nil)\n", "row 2: docs/faults.md does not have it"},
		"no test":                       {first + "| 2 | f | b | none |\n", sources, "row 2: has no test"},
		"empty cell":                    {first + "| 2 | f | b |  |\n", sources, "row 2: has the cells"},
		"cell is missing":               {first + "| 2 | f | [`TestFault01Lost`](../a/a_test.go) |\n", sources, "row 2: has the cells"},
		"not built, and no sentence":    {first + "| 2 | f | b | Not built yet: a store |\n", sources, "row 2: has no test"},
		"test is gone":                  {first + second + third, "package a\n\nfunc TestOther(t *testing.T) {}\n", "row 1: a/a_test.go has no TestFault01Lost"},
		"test has no number":            {"| 1 | f | b | [`TestOther`](../a/a_test.go) |\n", sources, "row 1: the name of TestOther does not have the number"},
		"test of another row":           {first + "| 2 | f | b | [`TestFault01Lost`](../a/a_test.go) |\n", sources, "row 2: the name of TestFault01Lost"},
		"test in another file":          {first + "| 2 | f | b | [`TestFault02`](../a/b_test.go) |\n", sources + "func TestFault02(t *testing.T) {}\n", "row 2: there is no file a/b_test.go"},
		"tests that it does not name":   {first + second, sources + "func TestFault02Sleep(t *testing.T) {}\n", "row 2: links to none of its tests"},
		"page is missing":               {first + "| 2 | f | b | [\"Suspend\"](desing.md#else) |\n", sources, "row 2: open docs/desing.md"},
		"heading is missing":            {first + "| 2 | f | b | [\"Suspend\"](design.md#what-can-be-had) |\n", sources, "row 2: docs/design.md has no heading"},
		"sentence is in another one":    {first + "| 2 | f | b | [\"Suspend of all\"](design.md#else) |\n", sources, "row 2: docs/design.md#else does not say"},
		"sentence is empty":             {first + "| 2 | f | b | [\"\"](design.md#else) |\n", sources, "row 2: docs/design.md#else does not say"},
		"number without a row":          {first + second + third, sources + "func FuzzFault126(f *testing.F) {}\n", "row 126: docs/faults.md does not have it"},
		"second number without a row":   {first + second + third, sources + "func TestFault01And108(t *testing.T) {}\n", "row 108: docs/faults.md does not have it"},
		"row is missing, without tests": {first + third, sources, "row 2: docs/faults.md does not have it"},
		"row is there twice":            {first + second + second, sources, "row 2: stands after row 2"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := readFaults(fstest.MapFS{
				faultsPage:       {Data: []byte("# Faults\n\n| Row | Fault | Right behaviour | Test |\n|---|---|---|---|\n" + tc.page)},
				"docs/design.md": {Data: []byte(design)},
				"a/a_test.go":    {Data: []byte(tc.source)},
			})
			require.NoError(t, err)
			problems := c.check()
			if tc.want == "" {
				assert.Empty(t, problems)
				return
			}
			if assert.Len(t, problems, 1) {
				assert.Contains(t, problems[0], tc.want)
			}
		})
	}
}
