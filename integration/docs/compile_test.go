package docs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The Go code of each document compiles. A block that begins with a package clause is a file.
// Every other block is a fragment: it may use the packages and values of prelude_test.go, and may
// declare variables that it does not use.
func TestGoBlocksCompile(t *testing.T) {
	c := newChecker(t)
	found := 0
	for document, text := range documents(t) {
		for _, b := range blocks(document, text) {
			if b.language != "go" {
				continue
			}
			found++
			if err := c.check(b.text); err != nil {
				t.Errorf("%s, line %d: %v\n%s", b.document, b.line, err, b.text)
			}
		}
	}
	if found < 20 {
		t.Errorf("found only %d blocks of Go code", found)
	}
}

// The test above finds what does not compile.
func TestWrongBlocksAreFound(t *testing.T) {
	c := newChecker(t)
	for _, right := range []string{
		"hold, err := lock.LockContext(ctx)\nif err != nil {\n\treturn err\n}\ndefer hold.Unlock()\n",
		"func handle(ctx context.Context) error { return lock.Do(ctx, work) }\n",
		"package main\n\nfunc main() {}\n",
		"if err != nil {\n\treturn\n}\n",
	} {
		if err := c.check(right); err != nil {
			t.Errorf("%v\n%s", err, right)
		}
	}
	for _, wrong := range []string{
		"lock.Lok()\n",
		"hold := lock.LockContext(ctx)\n",
		"unknown(ctx)\n",
		"func handle(\n",
		"package main\n\nimport \"fmt\"\n\nfunc main() {}\n",
		"package main\n\nfunc main() { x := 1 }\n",
		"import \"example.com/nowhere\"\n\nvar _ = nowhere.X\n",
	} {
		if c.check(wrong) == nil {
			t.Errorf("this compiles:\n%s", wrong)
		}
	}
}

var isFile = regexp.MustCompile(`^(//.*\n)*package `)

// checker checks the types of code with the compiled packages of this module's build.
type checker struct {
	fset     *token.FileSet
	importer types.Importer
}

func newChecker(t *testing.T) *checker {
	t.Helper()
	args := append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, slices.Sorted(maps.Values(packages))...)
	args = append(args, "modernc.org/sqlite")
	cmd := exec.CommandContext(t.Context(), "go", args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -export: %v\n%s", err, stderr.String())
	}
	compiled := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		compiled[path] = file
	}
	fset := token.NewFileSet()
	return &checker{fset, importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if compiled[path] == "" {
			return nil, fmt.Errorf("no package %q in the documents' list", path)
		}
		return os.Open(compiled[path])
	})}
}

// check returns what is wrong with the code of one block.
func (c *checker) check(code string) error {
	if isFile.MatchString(code) {
		// The reader's own store, which a page imports, is one in memory here.
		return c.compile(strings.ReplaceAll(code, `"example.com/mystore"`, `mystore "github.com/dlock-go/dlock/store/memory"`), false)
	}
	// A fragment is declarations, or statements of a function with or without a result.
	var errs []error
	for _, form := range []string{"%s", "func _() error {\n%s\npanic(0)\n}", "func _() {\n%s\n}"} {
		err := c.compile("package p\n"+fmt.Sprintf(form, code), true)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// compile parses and checks one file. Of a fragment it adds what the file uses of the prelude, and
// lets variables be unused.
func (c *checker) compile(code string, fragment bool) error {
	file, err := parser.ParseFile(c.fset, "", code, 0)
	if err != nil {
		return err
	}
	files := []*ast.File{file}
	if fragment {
		text := prelude(file)
		added, err := parser.ParseFile(c.fset, "", text, 0)
		if err != nil {
			return err
		}
		files = append(files, added)
		// An import belongs to one file, so the fragment's file is parsed again with them.
		if file, err = parser.ParseFile(c.fset, "", strings.Replace(code, "package p\n", "package p\n"+imports(file), 1), 0); err != nil {
			return err
		}
		files[0] = file
	}
	var errs []error
	config := types.Config{Importer: c.importer, Error: func(err error) {
		if !fragment || !strings.Contains(err.Error(), "declared and not used") {
			errs = append(errs, err)
		}
	}}
	_, _ = config.Check("p", c.fset, files, nil) // Error has got each error
	return errors.Join(errs...)
}

// imports returns an import for each package of the prelude that the file names.
func imports(file *ast.File) string {
	var text strings.Builder
	seen := make(map[string]bool)
	for _, spec := range file.Imports {
		if spec.Name != nil {
			seen[spec.Name.Name] = true
		} else {
			path := strings.Trim(spec.Path.Value, `"`)
			seen[path[strings.LastIndexByte(path, '/')+1:]] = true
		}
	}
	for _, id := range file.Unresolved {
		if path := packages[id.Name]; path != "" && !seen[id.Name] {
			seen[id.Name] = true
			fmt.Fprintf(&text, "import %s %q\n", id.Name, path)
		}
	}
	return text.String()
}

// prelude returns a file that declares each value of the prelude that the file names.
func prelude(file *ast.File) string {
	var uses, declares strings.Builder
	seen := make(map[string]bool)
	for _, id := range file.Unresolved {
		kind := values[id.Name]
		if kind == "" || seen[id.Name] {
			continue
		}
		seen[id.Name] = true
		fmt.Fprintf(&declares, "var %s %s\n", id.Name, kind)
	}
	for name, path := range packages {
		if strings.Contains(declares.String(), name+".") && usesPackage(declares.String(), name) {
			fmt.Fprintf(&uses, "import %s %q\n", name, path)
		}
	}
	return "package p\n" + uses.String() + declares.String()
}

// usesPackage reports that one of the declarations has a type of the package.
func usesPackage(declarations, name string) bool {
	for _, mark := range []string{" ", "*", "("} {
		if strings.Contains(declarations, mark+name+".") {
			return true
		}
	}
	return false
}
