package dlock_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sources parses the Go files, tests apart, of a directory.
func sources(t *testing.T, dir string) map[string]*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
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

// Fault 60: a step of the client's wall clock has no effect, because nothing
// reads it. All of these read it, or drop the monotonic reading from a Time.
func TestFault60WallClockIsNotUsed(t *testing.T) {
	wall := map[string]bool{
		"Unix": true, "UnixNano": true, "UnixMicro": true, "UnixMilli": true,
		"Round": true, "Truncate": true, "UTC": true, "Local": true, "In": true, "AddDate": true,
		"Date": true, "Clock": true, "Year": true, "Month": true, "Day": true, "YearDay": true, "Weekday": true,
		"Hour": true, "Minute": false, "Second": false, // these two are constants, too
		"Format": true, "AppendFormat": true, "Parse": true, "ParseInLocation": true,
		"GobEncode": true, "MarshalJSON": true, "MarshalText": true, "MarshalBinary": true, "AppendBinary": true,
	}
	for _, dir := range []string{".", "watchdog", "store", "store/memory"} {
		for path, file := range sources(t, dir) {
			ast.Inspect(file, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok || !wall[sel.Sel.Name] {
					return true
				}
				if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" && sel.Sel.Name == "Hour" {
					return true // the constant
				}
				assert.Fail(t, "wall-clock time", "%s uses %s", path, sel.Sel.Name)
				return true
			})
		}
	}
}

// Nor does a moment travel: what a store is told and tells has durations only.
func TestFault60RequestsCarryNoMoments(t *testing.T) {
	var visit func(path string, typ reflect.Type)
	visit = func(path string, typ reflect.Type) {
		assert.NotEqual(t, reflect.TypeFor[time.Time](), typ, path)
		switch typ.Kind() {
		case reflect.Struct:
			for i := range typ.NumField() {
				visit(path+"."+typ.Field(i).Name, typ.Field(i).Type)
			}
		case reflect.Slice, reflect.Pointer, reflect.Array:
			visit(path, typ.Elem())
		}
	}
	for _, v := range []any{store.Request{}, store.Ref{}, store.Grant{}, store.Event{}, store.State{}} {
		visit(reflect.TypeOf(v).Name(), reflect.TypeOf(v))
	}
}
