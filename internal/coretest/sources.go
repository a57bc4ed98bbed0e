package coretest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// CorePackages are the directories of the code that takes and keeps locks, from the root of the
// module. Those that do not exist are left out.
func CorePackages(t testing.TB) []string {
	t.Helper()
	packages := []string{"."}
	for _, dir := range []string{"internal/core", "internal/localqueue", "internal/request"} {
		if _, err := os.Stat(filepath.Join(root(t), dir)); err == nil {
			packages = append(packages, dir)
		}
	}
	return packages
}

// Sources parses the Go files of a directory without its tests. The directory is given from the
// root of the module.
func Sources(t testing.TB, dir string) map[string]*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root(t), dir, "*.go"))
	require.NoError(t, err)
	files := make(map[string]*ast.File)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		files[path], err = parser.ParseFile(token.NewFileSet(), path, text, 0)
		require.NoError(t, err)
	}
	require.NotEmpty(t, files)
	return files
}

// root returns the directory of the module, which is the nearest one above with a go.mod file.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		above := filepath.Dir(dir)
		require.NotEqual(t, dir, above, "no go.mod file above the test")
		dir = above
	}
}
