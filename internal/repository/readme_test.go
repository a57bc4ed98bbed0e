package repository

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/internal/redistest"
)

// fence is one code block of a document.
type fence struct{ language, text string }

func document(t *testing.T, file string) (text string, fences []fence) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = string(data)
	for _, m := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		fences = append(fences, fence{m[1], m[2]})
	}
	return text, fences
}

// Each program in the documents for newcomers is vetted as a file of another module, and run. A text
// block shows the output of the program before it, except for times. (The test in integration/docs
// compiles the Go code of all documents.)
func TestReadmeCode(t *testing.T) {
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	m := newModule(t, root)
	redisURL := redistest.Start(t).URL()
	blocks := 0
	var programs []func(t *testing.T)
	for _, file := range []string{"README.md", "docs/get-started.md", "docs/writing-a-store.md"} {
		_, fences := document(t, file)
		for i, f := range fences {
			var shown string
			if i+1 < len(fences) && fences[i+1].language == "text" {
				shown = fences[i+1].text
			}
			switch {
			case f.language == "go" && strings.HasPrefix(f.text, "package main\n"):
				blocks++
				dir := fmt.Sprintf("block%d", blocks)
				m.write(t, dir+"/main.go", strings.ReplaceAll(f.text, "redis://localhost:6379", redisURL))
				programs = append(programs, func(t *testing.T) { compare(t, goCommand(t, m.dir, "run", "-mod=mod", "./"+dir), shown) })
			case f.language == "go" && strings.HasPrefix(f.text, "package mystore_test\n"):
				blocks++
				m.write(t, "mystore/mystore_test.go", f.text)
			case f.language == "go" && file == "README.md":
				t.Errorf("a Go block of the README that is no program:\n%s", f.text)
			case strings.HasSuffix(f.text, "\ngo run ./examples/orders\n"):
				programs = append(programs, func(t *testing.T) { compare(t, goCommand(t, root, "run", "./examples/orders"), shown) })
			}
		}
	}
	if blocks != 4 || len(programs) != 4 {
		t.Errorf("found %d Go blocks and %d programs, want 4 and 4", blocks, len(programs))
	}
	goCommand(t, m.dir, "vet", "-mod=mod", "./...")
	for _, program := range programs {
		program(t)
	}
}

// testModule is the module of a reader, in a temporary folder.
type testModule struct{ dir string }

// newModule makes a module with the same requirements as this one, so that nothing has to be downloaded.
func newModule(t *testing.T, root string) testModule {
	t.Helper()
	m := testModule{t.TempDir()}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	m.write(t, "go.sum", string(sums))
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	m.write(t, "go.mod", strings.Replace(string(mod), "module github.com/dlock-go/dlock\n", "module example.com\n", 1)+fmt.Sprintf(
		"\nrequire github.com/dlock-go/dlock v0.0.0\n\nreplace github.com/dlock-go/dlock => %q\n", root))
	m.write(t, "mystore/mystore.go", "// Package mystore stands for the reader's own store.\npackage mystore\n\n"+
		"import \"github.com/dlock-go/dlock/store/memory\"\n\nfunc New() *memory.Store { return memory.New() }\n")
	return m
}

func (m testModule) write(t *testing.T, name, text string) {
	t.Helper()
	name = filepath.Join(m.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func goCommand(t *testing.T, dir string, args ...string) (stdout string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

func compare(t *testing.T, printed, shown string) {
	t.Helper()
	varying := regexp.MustCompile(`[\d.]+(ns|µs|ms|s)\b|highest \d+`) // figures that differ from run to run
	printed, shown = varying.ReplaceAllString(printed, "N"), varying.ReplaceAllString(shown, "N")
	end, part := strings.CutPrefix(shown, "...\n") // only the end is shown
	if part && end != "" && strings.HasSuffix(printed, "\n"+end) {
		return
	}
	if printed != shown {
		t.Errorf("printed\n%s\nthe document shows\n%s", printed, shown)
	}
}

// The tables contain every error, option and lock option.
func TestReadmeTables(t *testing.T) {
	text, _ := document(t, "docs/reference.md")
	names := 0
	want := func(name string) {
		names++
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/reference.md has no `%s`", name)
		}
	}
	for _, file := range []string{"errors.go", "options.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for _, id := range n.Names {
					if strings.HasPrefix(id.Name, "Err") {
						want(id.Name)
					}
				}
			case *ast.TypeSpec:
				if s, ok := n.Type.(*ast.StructType); ok && n.Name.Name == "Options" {
					for _, field := range s.Fields.List {
						for _, id := range field.Names {
							want(id.Name)
						}
					}
				}
			case *ast.FuncDecl:
				if n.Recv == nil && strings.HasPrefix(n.Name.Name, "With") {
					want(n.Name.Name)
				}
			}
			return true
		})
	}
	if names < 20 {
		t.Errorf("found only %d names to look for", names)
	}
}
