// Package secrets looks for passwords and ids of owners in all that dlock tells: errors,
// logs, traces, what the command prints, and the page. Each store is opened with a password,
// works for a while, meets a server that is gone, and then one that rejects its password.
package secrets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/zap"

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

// The guard of dlock run is this program, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "guard" {
		os.Exit(cli.New().Run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

const password = "canary-Zq7wX"

// keeper is a store. Of a quorum, addr is several addresses with spaces between them.
type keeper struct {
	name string
	// start starts servers that ask for the password. reject has them ask for another one.
	start func(t *testing.T) (addr string, url func(addr string) string, reject func())
}

var keepers = []keeper{
	{"redis", startRedis}, {"quorum", startQuorum}, {"etcd", startEtcd}, {"postgres", startPostgres}, {"zookeeper", startZookeeper},
}

func startRedis(t *testing.T) (string, func(string) string, func()) {
	s := redistest.Start(t)
	s.MustDo("ACL", "SETUSER", "locker", "on", ">"+password, "~*", "&*", "+@all")
	return s.Addr, func(addr string) string { return "redis://locker:" + password + "@" + addr },
		func() { s.MustDo("ACL", "SETUSER", "locker", "resetpass", ">another") }
}

func startQuorum(t *testing.T) (string, func(string) string, func()) {
	var addrs []string
	var rejects []func()
	var one func(string) string
	for range 3 {
		addr, url, reject := startRedis(t)
		addrs, rejects, one = append(addrs, addr), append(rejects, reject), url
	}
	return strings.Join(addrs, " "), func(addr string) string {
			var urls []string
			for a := range strings.FieldsSeq(addr) {
				urls = append(urls, one(a))
			}
			return strings.Join(urls, " ")
		}, func() {
			for _, reject := range rejects {
				reject()
			}
		}
}

func startEtcd(t *testing.T) (string, func(string) string, func()) {
	s := etcdtest.Start(t, 1, "--bcrypt-cost=4")
	admin := s.Client(t)
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range []string{"root", "locker"} {
		do(admin.UserAdd(t.Context(), user, password))
		do(admin.UserGrantRole(t.Context(), user, "root"))
	}
	do(admin.AuthEnable(t.Context()))
	root, err := clientv3.New(clientv3.Config{Endpoints: s.Endpoints(), Username: "root", Password: password, Logger: zap.NewNop()})
	do(nil, err)
	t.Cleanup(func() { root.Close() })
	return s.Members[0].Endpoint, func(addr string) string { return "etcd://locker:" + password + "@" + addr + "/" },
		func() { do(root.UserChangePassword(t.Context(), "locker", "another")) }
}

func startPostgres(t *testing.T) (string, func(string) string, func()) {
	s := postgrestest.Start(t)
	url := stores.NewDatabase(t, s)
	s.Exec("CREATE ROLE locker SUPERUSER LOGIN PASSWORD '" + password + "'")
	s.Exec(`DO $$ BEGIN EXECUTE format('COPY (VALUES (''host all locker all scram-sha-256''), (''host all all all trust'')) TO %L',
		current_setting('hba_file')); END $$`)
	s.Stop()
	s.Launch() // which reads who is asked for a password
	return s.Addr, func(addr string) string {
		return strings.NewReplacer(s.Addr, addr, "dlock@", "locker:"+password+"@").Replace(url)
	}, func() { s.Exec("ALTER ROLE locker PASSWORD 'another'") }
}

// startZookeeper: a server refuses no password, but its nodes have the ACL of another one.
func startZookeeper(t *testing.T) (string, func(string) string, func()) {
	s := zookeepertest.Start(t, 1)
	addr := s.Members[0].Addr
	return addr, func(addr string) string { return "zk://locker:" + password + "@" + addr + "?session_timeout=1s" }, func() {
		c, _, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogInfo(false))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		err = c.AddAuth("digest", []byte("locker:"+password))
		for _, path := range []string{"/dlock/clock", "/dlock/locks", "/dlock"} {
			if err == nil {
				_, err = c.SetACL(path, zk.DigestACL(zk.PermAll, "locker", "another"), -1)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
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
	addr, urlOf, reject := k.start(t)
	var proxies []*proxytest.Proxy
	var wired []string
	for a := range strings.FieldsSeq(addr) {
		p := proxytest.Start(t, a)
		proxies, wired = append(proxies, p), append(wired, p.Addr)
	}
	url := urlOf(strings.Join(wired, " "))
	on, err := stores.Open(url)
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
	var h *dlock.Hold
	lock := func() {
		t.Helper()
		locktest.Poll(t, "the lock is granted", locktest.Patience, func() bool {
			h, err = c.Mutex("a").LockContext(ctx)
			return err == nil
		})
	}
	lose := func(why error) {
		t.Helper()
		for _, p := range proxies {
			p.Cut()
		}
		locktest.Poll(t, "a call fails because the "+why.Error(), locktest.Patience, func() bool {
			_, err := c.Mutex("b").TryLockContext(ctx)
			w.add("Try", err)
			return errors.Is(err, why)
		})
		<-h.Done() // its renewals fail
		w.add("Err", h.Err())
		w.add("Unlock", h.Unlock())
		visit(t, w, c, url, "list", "check", "run --try --ttl 1s b true", "watch", "ui --listen 127.0.0.1:0")
	}

	lock()
	visit(t, w, c, url, "list", "list --json", "inspect a", "inspect --json a", "check", "run --try --ttl 1s b true", "break b",
		"watch", "watch a", "watch --json a", "ui --listen 127.0.0.1:0")
	if !strings.Contains(w.String(), owner.String()[:6]) {
		t.Error("nothing tells of the hold at all")
	}
	for _, p := range proxies {
		p.Blackhole(true)
	}
	lose(dlock.ErrUnavailable)
	for _, p := range proxies {
		p.Blackhole(false)
	}
	lock()
	reject()
	lose(dlock.ErrRefused)
	again, err := stores.Open(url)
	if err == nil {
		again.Close()
	}
	w.add("Open", err)
	w.add("Close", c.Close())
	_, err = stores.Open(urlOf(strings.TrimSpace(strings.Repeat("127.0.0.1:1 ", len(proxies))))) // nobody listens there
	w.add("Open", err)

	fmt.Fprintf(w, "%v %+v %v %+v %#v\n", h, h, owner, owner, owner)
	text, err := json.Marshal(map[string]any{"owner": owner, "spans": spans.GetSpans()})
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
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var visiting sync.WaitGroup
	defer visiting.Wait()
	for _, command := range commands {
		visiting.Go(func() {
			p := cli.New()
			p.Stdin, p.Stdout, p.Stderr, p.Self = strings.NewReader(""), w, w, os.Args[0]
			p.Context = ctx
			if strings.HasPrefix(command, "watch") || strings.HasPrefix(command, "ui") { // they end when they are told to
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				p.Context, p.Stdout = ctx, once{w, cancel}
			}
			p.Getenv = func(name string) string {
				if name == "DLOCK_STORE" {
					return url
				}
				return ""
			}
			p.Environ = func() []string { return nil }
			fmt.Fprintf(w, "dlock %s: %d\n", command, p.Run(strings.Fields(command)))
		})
	}
	visiting.Go(func() {
		guard := exec.Command(os.Args[0], "guard") // it has the signals of a process
		guard.Env, guard.Stdin = append(os.Environ(), "DLOCK_STORE="+url), strings.NewReader("done")
		text, err := guard.CombinedOutput()
		fmt.Fprintf(w, "dlock guard: %s %v\n", text, err)
	})
	page, err := ui.New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/api/locks", "/api/lock?name=a"} {
		visiting.Go(func() {
			answer := httptest.NewRecorder()
			page.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
			fmt.Fprintf(w, "%s: %d %v %s\n", path, answer.Code, answer.Header(), answer.Body)
		})
	}
}

// once ends a command that has told something.
type once struct {
	io.Writer
	end func()
}

func (w once) Write(p []byte) (int, error) {
	defer w.end()
	return w.Writer.Write(p)
}
