// Package secrets looks for passwords and ids of owners in all that dlock tells: errors,
// logs, traces, what the command prints, and the page. Each store is opened with a password,
// works for a while, and then meets a server that is gone.
package secrets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/internal/cli"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/internal/proxytest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/zookeepertest"
	"github.com/dlock-go/dlock/otel"
	"github.com/dlock-go/dlock/ui"
)

const password = "canary-Zq7wX"

// keeper is a store behind a wire.
type keeper struct {
	name  string
	start func(t *testing.T) (addr string, url func(addr string) string)
}

var keepers = []keeper{
	{"redis", startRedis}, {"etcd", startEtcd}, {"postgres", startPostgres}, {"zookeeper", startZookeeper},
}

func startRedis(t *testing.T) (string, func(string) string) {
	s := redistest.Start(t)
	s.MustDo("ACL", "SETUSER", "locker", "on", ">"+password, "~*", "&*", "+@all")
	return s.Addr, func(addr string) string { return "redis://locker:" + password + "@" + addr }
}

func startEtcd(t *testing.T) (string, func(string) string) {
	s := etcdtest.Start(t, 1) // which needs no password, and is given one
	return s.Members[0].Endpoint, func(addr string) string { return "etcd://locker:" + password + "@" + addr + "/" }
}

func startPostgres(t *testing.T) (string, func(string) string) {
	s := postgrestest.Start(t)
	url := stores.NewDatabase(t, s)
	return s.Addr, func(addr string) string {
		return strings.NewReplacer(s.Addr, addr, "dlock@", "dlock:"+password+"@").Replace(url)
	}
}

func startZookeeper(t *testing.T) (string, func(string) string) {
	s := zookeepertest.Start(t, 1)
	return s.Members[0].Addr, func(addr string) string { return "zk://locker:" + password + "@" + addr + "?session_timeout=1s" }
}

// told is all that was told. It is safe for concurrent use.
type told struct{ locktest.Buffer }

func (w *told) add(what string, err error) {
	fmt.Fprintf(w, "%s: %v\n", what, err)
	for ; err != nil; err = errors.Unwrap(err) {
		fmt.Fprintf(w, "%+v %#v\n", err, err.Error())
	}
}

func TestSecretsAreNotTold(t *testing.T) {
	w := &told{}
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})))
	log.SetOutput(w)
	t.Cleanup(func() { slog.SetDefault(before); log.SetOutput(os.Stderr) })
	for _, k := range keepers {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			tellAll(t, w, k)
		})
	}
}

func tellAll(t *testing.T, w *told, k keeper) {
	addr, url := k.start(t)
	proxy := proxytest.Start(t, addr)
	on, err := stores.Open(url(proxy.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer on.Close()
	spans := tracetest.NewInMemoryExporter()
	observer, err := otel.New(&otel.Options{
		MeterProvider:  metric.NewMeterProvider(),
		TracerProvider: trace.NewTracerProvider(trace.WithSyncer(spans)),
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := dlock.New(on, &dlock.Options{TTL: time.Second, Logger: slog.Default(), Observer: observer})
	if err != nil {
		t.Fatal(err)
	}
	owner := dlock.NewOwner()
	ctx := dlock.WithOwner(t.Context(), owner)
	h, err := c.Mutex("a").LockContext(ctx)
	if err != nil {
		t.Fatal(err)
	}
	visit(t, w, c, url(proxy.Addr), "list", "list --json", "inspect a", "inspect --json a", "check", "run --try b true", "break b")
	if !strings.Contains(w.String(), owner.String()[:6]) {
		t.Error("nothing tells of the hold at all")
	}

	proxy.Blackhole(true)
	proxy.Cut()
	_, err = c.Mutex("b").TryLockContext(ctx)
	w.add("Try", err)
	<-h.Done() // its renewals fail
	w.add("Err", h.Err())
	w.add("Unlock", h.Unlock())
	visit(t, w, c, url(proxy.Addr), "list", "check", "run --try b true")
	w.add("Close", c.Close())
	_, err = stores.Open(url("127.0.0.1:1")) // nobody listens there
	w.add("Open", err)

	fmt.Fprintf(w, "%v %+v %v %+v %#v\n", h, h, owner, owner, owner)
	text, err := json.Marshal(map[string]any{"owner": owner, "spans": spans.GetSpans().Snapshots()})
	fmt.Fprintf(w, "%s %v %v\n", text, err, spans.GetSpans())
	for what, secret := range map[string]string{"the password": password, "an owner": owner.String()} {
		if before, after, found := strings.Cut(w.String(), secret); found {
			t.Errorf("%s is told: ...%s<here>%s...", what, before[max(0, len(before)-300):], after[:min(len(after), 100)])
		}
	}
}

// visit has the command and the page tell what they can.
func visit(t *testing.T, w *told, c *dlock.Client, url string, commands ...string) {
	t.Helper()
	for _, command := range commands {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		p := cli.New()
		p.Context, p.Self, p.Stdin, p.Stdout, p.Stderr = ctx, "", strings.NewReader(""), w, w
		p.Getenv = func(name string) string {
			if name == "DLOCK_STORE" {
				return url
			}
			return ""
		}
		p.Environ = func() []string { return nil }
		fmt.Fprintf(w, "dlock %s: %d\n", command, p.Run(strings.Fields(command)))
		cancel()
	}
	page, err := ui.New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/api/locks", "/api/lock?name=a"} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		answer := httptest.NewRecorder()
		page.ServeHTTP(answer, r)
		fmt.Fprintf(w, "%s: %d %v %s\n", path, answer.Code, answer.Header(), answer.Body)
		cancel()
	}
}
