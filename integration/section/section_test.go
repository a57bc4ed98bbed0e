package section_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dlock-go/dlock/integration/section"
)

// What is between the marks is replaced, and nothing else; without both marks,
// each once, nothing is written.
func TestWrite(t *testing.T) {
	for name, c := range map[string]struct {
		document, want string
	}{
		"replaced":    {"a\n<!-- x -->\nold\n<!-- /x -->\nb\n", "a\n<!-- x -->\nnew\n<!-- /x -->\nb\n"},
		"empty":       {"<!-- x --><!-- /x -->", "<!-- x -->\nnew\n<!-- /x -->"},
		"another":     {"<!-- y -->\n<!-- /y -->", ""},
		"open":        {"<!-- x -->\nold\n", ""},
		"backwards":   {"<!-- /x -->\n<!-- x -->\n", ""},
		"there twice": {"<!-- x --><!-- /x --><!-- x --><!-- /x -->", ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "document.md")
			if err := os.WriteFile(path, []byte(c.document), 0o600); err != nil {
				t.Fatal(err)
			}
			err := section.Write(path, "x", "\nnew\n")
			got, readErr := os.ReadFile(path)
			if readErr != nil {
				t.Fatal(readErr)
			}
			want := c.want
			if want == "" {
				want = c.document
			}
			if string(got) != want || (err == nil) != (c.want != "") {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
}

func TestTable(t *testing.T) {
	got := section.Table([]string{"a", "b"}, [][]string{{"1", "2|3"}})
	if want := "| a | b |\n|---|---|\n| 1 | 2\\|3 |\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
