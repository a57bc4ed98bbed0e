package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// block is one fenced block of a document.
type block struct {
	document string // its path below the root
	line     int    // of the first line of the code
	language string
	text     string
}

var fenced = regexp.MustCompile("(?ms)^```([\\w-]*)\n(.*?)^```$")

// blocks returns the fenced blocks of a document.
func blocks(document, text string) (list []block) {
	for _, m := range fenced.FindAllStringSubmatchIndex(text, -1) {
		list = append(list, block{
			document: document,
			line:     strings.Count(text[:m[4]], "\n") + 1,
			language: text[m[2]:m[3]],
			text:     text[m[4]:m[5]],
		})
	}
	return list
}

// documents returns the text of every Markdown file of the repository, by its path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		texts[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}
