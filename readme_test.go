package dlock_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/internal/redistest"
)

// fence is one code block of the README.
type fence struct{ language, text string }

func readme(t *testing.T) (text string, fences []fence) {
	t.Helper()
	data, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	text = string(data)
	for _, m := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		fences = append(fences, fence{m[1], m[2]})
	}
	return text, fences
}

// Each Go block of the README is vetted as a file of another module. A text block shows the output
// of the program before it, except for times.
func TestReadmeCode(t *testing.T) {
	_, fences := readme(t)
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	module := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(module, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	// The same requirements as this module, so that nothing has to be downloaded.
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	write("go.sum", string(sums))
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	write("go.mod", strings.Replace(string(mod), "module github.com/dlock-go/dlock\n", "module example.com\n", 1)+fmt.Sprintf(
		"\nrequire github.com/dlock-go/dlock v0.0.0\n\nreplace github.com/dlock-go/dlock => %q\n", root))
	write("mystore/mystore.go", "// Package mystore stands for the reader's own store.\npackage mystore\n\n"+
		"import \"github.com/dlock-go/dlock/store/memory\"\n\nfunc New() *memory.Store { return memory.New() }\n")

	redisURL := redistest.Start(t).URL()
	blocks := 0
	var programs []func(t *testing.T)
	for i, f := range fences {
		var shown string
		if i+1 < len(fences) && fences[i+1].language == "text" {
			shown = fences[i+1].text
		}
		switch {
		case f.language == "go" && strings.HasPrefix(f.text, "package main\n"):
			blocks++
			dir := fmt.Sprintf("block%d", blocks)
			write(dir+"/main.go", strings.ReplaceAll(f.text, "redis://localhost:6379", redisURL))
			programs = append(programs, func(t *testing.T) { compare(t, goCommand(t, module, "run", "-mod=mod", "./"+dir), shown) })
		case f.language == "go" && strings.HasPrefix(f.text, "package mystore_test\n"):
			blocks++
			write("mystore/mystore_test.go", f.text)
		case f.language == "go":
			t.Errorf("a Go block that is neither program nor test of mystore:\n%s", f.text)
		case strings.HasSuffix(f.text, "\ngo run ./examples/orders\n"):
			programs = append(programs, func(t *testing.T) { compare(t, goCommand(t, root, "run", "./examples/orders"), shown) })
		}
	}
	if blocks != 4 || len(programs) != 4 {
		t.Errorf("found %d Go blocks and %d programs, want 4 and 4", blocks, len(programs))
	}
	goCommand(t, module, "vet", "-mod=mod", "./...")
	for _, program := range programs {
		program(t)
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
	if printed = varying.ReplaceAllString(printed, "N"); printed != varying.ReplaceAllString(shown, "N") {
		t.Errorf("printed\n%s\nthe README shows\n%s", printed, shown)
	}
}

// The tables contain every error, option and lock option.
func TestReadmeTables(t *testing.T) {
	text, _ := readme(t)
	names := 0
	want := func(name string) {
		names++
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("the README has no `%s`", name)
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

// Each link in the documents leads to a file that exists, and to a heading that exists if it names one.
func TestLinks(t *testing.T) {
	documents, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range append(documents, "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md") {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
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
