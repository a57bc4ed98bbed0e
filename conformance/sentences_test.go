package conformance

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// ellipsis stands in a case's sentence where words of the contract are left out.
const ellipsis = " ... "

// TestSentences: the contract has every sentence that a case cites, word for
// word, so that the author of a store finds it.
func TestSentences(t *testing.T) {
	source, err := os.ReadFile("../store/store.go")
	if err != nil {
		t.Fatal(err)
	}
	contract := plain(string(source))
	for _, c := range allCases() {
		for part := range strings.SplitSeq(c.says, ellipsis) {
			if part = plain(part); len(part) < 12 || !strings.Contains(contract, part) {
				t.Errorf("%s: store.go does not have %q", c.name, part)
			}
		}
	}
}

var (
	comments = regexp.MustCompile(`(?m)^\s*//( *- | +\d\. )?`)
	spaces   = regexp.MustCompile(`\s+`)
)

// plain is the text of a Go file or a sentence without comment signs, list
// signs, links and line breaks.
func plain(source string) string {
	text := comments.ReplaceAllString(source, " ")
	text = strings.NewReplacer("[", "", "]", "", "//", " ").Replace(text)
	return strings.TrimSpace(spaces.ReplaceAllString(text, " "))
}
