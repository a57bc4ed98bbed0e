package repository

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A program that imports a package of this module compiles nothing else but the standard library
// and these modules.
func TestImports(t *testing.T) {
	const module = "github.com/dlock-go/dlock"
	const wheel = "github.com/RussellLuo/timingwheel"
	const rueidis = "github.com/redis/rueidis"
	allowed := map[string][]string{
		"":              {wheel},
		"/store":        nil,
		"/store/memory": nil,
		"/store/model":  nil,
		"/store/kv":     nil,
		"/store/quorum": nil,
		"/store/postgres": { // pgx and what it brings
			"github.com/jackc/", "golang.org/x/",
		},
		"/store/zookeeper": {"github.com/go-zookeeper/zk"},
		"/store/redis":     {rueidis, "golang.org/x/sys"},
		"/store/etcd": { // the client and what it brings
			"go.etcd.io/etcd", "go.uber.org/zap", "go.uber.org/multierr", "google.golang.org/", "golang.org/x/",
			"github.com/gogo/protobuf", "github.com/golang/protobuf", "github.com/grpc-ecosystem/grpc-gateway",
			"github.com/coreos/go-semver", "github.com/coreos/go-systemd",
		},
		"/fence":            nil,
		"/dlocktest":        {wheel},
		"/fence/redisfence": {rueidis, "golang.org/x/sys"},
		"/watchdog":         {wheel},
		"/otel":             {wheel, "go.opentelemetry.io/", "github.com/go-logr/", "github.com/cespare/xxhash"},
		"/conformance":      nil,
		"/ui":               {wheel},
	}
	for pkg, roots := range allowed {
		out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", module+pkg).Output()
		require.NoError(t, err, "go list %s", module+pkg)
		for dep := range strings.FieldsSeq(string(out)) {
			ok := strings.HasPrefix(dep, module)
			for _, root := range roots {
				ok = ok || strings.HasPrefix(dep, root)
			}
			require.True(t, ok, "%s imports %s", module+pkg, dep)
		}
	}
}

// make cover has a minimum for each package below internal that the command is made of, with all stores.
func TestCoverHasEachInternalPackage(t *testing.T) {
	const internal = "github.com/dlock-go/dlock/internal/"
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	out, err := exec.Command("go", "list", "-deps", "./cmd/dlock", "./ui").Output()
	require.NoError(t, err)
	found := 0
	for dep := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(dep, internal) {
			has := regexp.MustCompile(`\t` + regexp.QuoteMeta(dep) + `[= \n]`).Match(makefile)
			assert.True(t, has, "COVER in the Makefile does not have %s", dep)
			found++
		}
	}
	assert.GreaterOrEqual(t, found, 7)
}
