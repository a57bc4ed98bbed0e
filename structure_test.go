package dlock_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// layers are the packages of the core. A package imports only packages of lower layers.
var layers = map[string]int{
	".": 3, "internal/core": 2, "internal/localqueue": 1, "internal/request": 1, "watchdog": 0, "store": 0,
}

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

// Imports point down: no package of the core imports one of its own layer or of a higher one.
func TestImportsPointDown(t *testing.T) {
	const module = "github.com/dlock-go/dlock"
	for dir, layer := range layers {
		_, files := code(t, dir)
		for path, file := range files {
			for _, spec := range file.Imports {
				imported, ok := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module)
				if !ok {
					continue
				}
				imported = strings.TrimPrefix(imported, "/")
				if imported == "" {
					imported = "."
				}
				if other, listed := layers[imported]; listed {
					assert.Less(t, other, layer, "%s imports %s", path, imported)
				}
			}
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

// Root has at most 12 files of code. No file of the core is longer than 300 lines, and no function
// than 60.
func TestCoreIsSmall(t *testing.T) {
	const mostFiles, mostLines, mostOfFunction = 12, 300, 60
	for dir := range layers {
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
