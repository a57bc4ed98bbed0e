package repository

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/dlock-go/dlock"

// mayImport lists for each package of the core which packages of the module it may
// import. All of them may import the standard library. A package that imports none of
// the module is listed with an empty list.
var mayImport = map[string][]string{
	".":                   {"internal/core", "internal/request", "store"},
	"internal/core":       {"internal/localqueue", "internal/request", "watchdog", "store"},
	"internal/localqueue": {"store"},
	"internal/request":    {"store"},
	"watchdog":            {},
	"store":               {},
}

// standardOnly lists the packages that import nothing from other modules either.
var standardOnly = []string{".", "internal/core", "internal/localqueue", "internal/request", "store"}

// code parses the Go files of a directory without its tests.
func code(t *testing.T, dir string) (*token.FileSet, map[string]*ast.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	fset, files := token.NewFileSet(), make(map[string]*ast.File)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		files[path], err = parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
	}
	require.NotEmpty(t, files, "no code in %s", dir)
	return fset, files
}

// imports returns the packages that a directory's code imports, with those of the module named
// from its root.
func imports(t *testing.T, dir string) (own, others []string) {
	t.Helper()
	_, files := code(t, dir)
	for _, file := range files {
		for _, spec := range file.Imports {
			path := strings.Trim(spec.Path.Value, `"`)
			switch first, _, _ := strings.Cut(path, "/"); {
			case path == module:
				own = append(own, ".")
			case strings.HasPrefix(path, module+"/"):
				own = append(own, strings.TrimPrefix(path, module+"/"))
			case strings.Contains(first, "."):
				others = append(others, path)
			}
		}
	}
	return own, others
}

// Imports point down: no package of the core imports one beside or above it.
func TestImportsPointDown(t *testing.T) {
	for dir, allowed := range mayImport {
		own, others := imports(t, dir)
		for _, path := range own {
			assert.Contains(t, allowed, path, "imports of %s", dir)
		}
		if slices.Contains(standardOnly, dir) {
			assert.Empty(t, others, "imports of %s", dir)
		}
	}
}

// No package below root imports root, through whatever packages.
func TestNothingBelowImportsRoot(t *testing.T) {
	var reach func(dir string, seen map[string]bool)
	reach = func(dir string, seen map[string]bool) {
		own, _ := imports(t, dir)
		for _, path := range own {
			if !seen[path] {
				seen[path] = true
				reach(path, seen)
			}
		}
	}
	for dir := range mayImport {
		seen := make(map[string]bool)
		reach(dir, seen)
		assert.NotContains(t, seen, ".", "packages that %s imports", dir)
		assert.NotContains(t, seen, dir)
		if dir == "." {
			assert.Equal(t, map[string]bool{
				"internal/core": true, "internal/localqueue": true, "internal/request": true, "watchdog": true, "store": true,
			}, seen)
		}
	}
}

// The local queue is a state machine: it has no clock, no input or output and no goroutines.
func TestLocalQueueIsPure(t *testing.T) {
	impure := map[string]bool{
		"time": true, "sync": true, "sync/atomic": true, "context": true, "os": true, "io": true, "net": true,
		"log": true, "log/slog": true, "runtime": true, "math/rand": true, "math/rand/v2": true, "crypto/rand": true,
	}
	_, files := code(t, "internal/localqueue")
	for path, file := range files {
		for _, spec := range file.Imports {
			assert.False(t, impure[strings.Trim(spec.Path.Value, `"`)], "%s imports %s", path, spec.Path.Value)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
				assert.Fail(t, "the local queue uses goroutines or channels", path)
			}
			return true
		})
	}
}

// No file of tests, in whatever module, is longer than 500 lines.
func TestFilesOfTestsAreShort(t *testing.T) {
	const mostLines = 500
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		assert.LessOrEqual(t, bytes.Count(text, []byte("\n")), mostLines, path)
		return err
	})
	require.NoError(t, err)
}

// Root has at most 12 files of code. No file of the core is longer than 300 lines, and no function
// than 60.
func TestCoreIsSmall(t *testing.T) {
	const mostFiles, mostLines, mostOfFunction = 12, 300, 60
	for dir := range mayImport {
		if dir == "store" {
			continue // the contract for stores is not part of the core
		}
		fset, files := code(t, dir)
		if dir == "." {
			assert.LessOrEqual(t, len(files), mostFiles, "files of code in root")
		}
		for path, file := range files {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.LessOrEqual(t, bytes.Count(text, []byte("\n")), mostLines, path)
			for _, decl := range file.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok {
					lines := fset.Position(f.End()).Line - fset.Position(f.Pos()).Line + 1
					assert.LessOrEqual(t, lines, mostOfFunction, "%s: %s", path, f.Name.Name)
				}
			}
		}
	}
}
