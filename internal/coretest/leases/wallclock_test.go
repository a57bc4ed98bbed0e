package leases

import (
	"go/ast"
	"reflect"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/assert"
)

// A step of the client's wall clock has no effect, because the code does not read it. Each of
// these names reads it, or drops the monotonic reading from a Time.
func TestFault60WallClockIsNotUsed(t *testing.T) {
	wall := map[string]bool{
		"Unix": true, "UnixNano": true, "UnixMicro": true, "UnixMilli": true,
		"Round": true, "Truncate": true, "UTC": true, "Local": true, "In": true, "AddDate": true,
		"Date": true, "Clock": true, "Year": true, "Month": true, "Day": true, "YearDay": true, "Weekday": true,
		"Hour": true, "Minute": false, "Second": false, // the last two are constants too
		"Format": true, "AppendFormat": true, "Parse": true, "ParseInLocation": true,
		"GobEncode": true, "MarshalJSON": true, "MarshalText": true, "MarshalBinary": true, "AppendBinary": true,
	}
	for _, dir := range append(coretest.CorePackages(t), "watchdog", "store", "store/memory") {
		for path, file := range coretest.Sources(t, dir) {
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

// No moment in time travels: requests and answers of a store contain durations only.
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
