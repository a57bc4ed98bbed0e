package redis_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

const (
	// lease is the TTL of the programs of these tests, unless they say otherwise.
	lease = 2 * time.Second
	// byRenewal is when a holder is told of a loss that the server knows of.
	byRenewal = lease/3 + slack
	// byAsking is when a waiter that nobody wakes has come in.
	byAsking = lease/3 + slack
	// slack is for a machine that does other things.
	slack = time.Second
	// ample is how long a test waits for what must happen but may take its time.
	ample = 20 * time.Second
)

// program is one process that uses dlock: a handle on the store, a client, and
// all that the client has logged.
type program struct {
	*dlock.Client
	t     *testing.T
	store *redis.Store
	label string
	said  *locktest.Buffer
}

var programs atomic.Int64

// startProgram opens a URL for a client that is closed when the test ends.
func startProgram(t *testing.T, url string, change ...func(*dlock.Options)) *program {
	t.Helper()
	return startProgramOn(t, open(t, url), change...)
}

// startProgramOn is startProgram with a handle that is open.
func startProgramOn(t *testing.T, s *redis.Store, change ...func(*dlock.Options)) *program {
	t.Helper()
	p := &program{
		t: t, store: s, said: &locktest.Buffer{},
		label: fmt.Sprint("program ", programs.Add(1)),
	}
	opts := &dlock.Options{
		TTL: lease, Label: p.label,
		Logger: slog.New(slog.NewTextHandler(p.said, &slog.HandlerOptions{Level: slog.LevelDebug - 10})),
	}
	for _, f := range change {
		f(opts)
	}
	var err error
	p.Client, err = dlock.New(p.store, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() }) // the server may be gone: then Close says what it leaves
	return p
}

func withTTL(d time.Duration) func(*dlock.Options) {
	return func(o *dlock.Options) { o.TTL = d }
}

// take takes a lock that should be free.
func (p *program) take(name string) *dlock.Hold {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), ample)
	defer cancel()
	h, err := p.Mutex(name).LockContext(ctx)
	require.NoError(p.t, err)
	return h
}

// turn is a call of LockContext that waits.
type turn struct {
	t    *testing.T
	done chan struct{}
	hold *dlock.Hold
	err  error
	at   time.Time // when the call returned
}

// call begins to wait for a lock.
func (p *program) call(name string) *turn {
	w := &turn{t: p.t, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		ctx, cancel := context.WithTimeout(context.Background(), 2*ample)
		defer cancel()
		w.hold, w.err = p.Mutex(name).LockContext(ctx)
		w.at = time.Now()
	}()
	return w
}

// queue is call that blocks until the server has the place.
func (p *program) queue(name string) *turn {
	p.t.Helper()
	w := p.call(name)
	until(p.t, "it is queued", func() bool {
		w.waits()
		state, err := p.store.Inspect(context.Background(), name)
		require.NoError(p.t, err)
		for _, e := range state.Queue {
			if e.Label == p.label {
				return true
			}
		}
		return false
	})
	return w
}

func (w *turn) over() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// waits asserts that the call has not returned.
func (w *turn) waits() {
	w.t.Helper()
	if w.over() {
		w.t.Fatalf("LockContext has returned %v, %v", w.hold, w.err)
	}
}

// ends blocks until the call has returned, d after from at the latest.
func (w *turn) ends(from time.Time, d time.Duration) {
	w.t.Helper()
	select {
	case <-w.done:
	case <-time.After(2*ample + slack):
		w.t.Fatal("LockContext does not return")
	}
	require.LessOrEqual(w.t, w.at.Sub(from), d, "LockContext returned late (its error is %v)", w.err)
}

// comes returns the hold, which was granted d after from at the latest.
func (w *turn) comes(from time.Time, d time.Duration) *dlock.Hold {
	w.t.Helper()
	w.ends(from, d)
	require.NoError(w.t, w.err)
	return w.hold
}

// fails returns the error of the call, which came d after from at the latest.
func (w *turn) fails(from time.Time, d time.Duration) error {
	w.t.Helper()
	w.ends(from, d)
	require.Error(w.t, w.err)
	return w.err
}

// told asserts that the holder is told of its loss, d after from at the latest.
func told(t *testing.T, h *dlock.Hold, from time.Time, d time.Duration) {
	t.Helper()
	select {
	case <-h.Done():
	case <-time.After(ample):
		t.Fatal("the holder is never told")
	}
	require.LessOrEqual(t, time.Since(from), d, "the holder was told late")
	require.ErrorIs(t, h.Err(), dlock.ErrLost)
	require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
}

// kept asserts that nobody loses a hold for the time of d.
func kept(t *testing.T, d time.Duration, holds ...*dlock.Hold) {
	t.Helper()
	over := time.After(d)
	for _, h := range holds {
		select {
		case <-h.Done():
			t.Fatalf("%q is lost: %v", h.Name(), h.Err())
		case <-over:
			over = time.After(0)
		}
	}
	<-over
	for _, h := range holds {
		require.NoError(t, h.Err())
	}
}

// until blocks until ok.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(ample); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain until %s", ample, what)
		}
	}
}

// want is a request of the n-th owner for a name, straight to the store.
func want(name string, n int) store.Request {
	return store.Request{
		Name: name, Owner: fmt.Sprintf("owner-%d", n), ID: fmt.Sprintf("%032x", n),
		TTL: lease, WaitTTL: lease, Tokens: 1, Label: "test",
	}
}

func of(r store.Request) store.Ref {
	return store.Ref{Name: r.Name, Owner: r.Owner, ID: r.ID, Mode: r.Mode, TTL: max(r.TTL, r.WaitTTL)}
}

// bounded is a context for calls that must return long before it ends.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), ample)
	t.Cleanup(cancel)
	return ctx
}

// startReplica starts a replica of a server and blocks until it has its data.
func startReplica(t *testing.T, master *redistest.Server, config ...string) *redistest.Server {
	t.Helper()
	_, port := splitAddr(master.Addr)
	s := redistest.Start(t, append([]string{"replicaof 127.0.0.1 " + port, "repl-timeout 60"}, config...)...)
	until(t, "the replica has the data of its master", func() bool {
		return field(s, "replication", "master_link_status") == "up" &&
			field(master, "replication", "connected_slaves") != "0"
	})
	return s
}

func splitAddr(addr string) (host, port string) {
	host, port, _ = strings.Cut(addr, ":")
	return host, port
}

// field is a value of INFO.
func field(s *redistest.Server, section, name string) string {
	for line := range strings.Lines(s.MustDo("INFO", section)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return value
		}
	}
	return ""
}

// relative returns a name of the same partition as other.
func relative(other string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint(other, " relative ", i); redis.Partition(name) == redis.Partition(other) {
			return name
		}
	}
}

// topics are what Check warns of.
func topics(s *redis.Store) []string {
	var list []string
	ctx, cancel := context.WithTimeout(context.Background(), ample)
	defer cancel()
	for _, w := range s.Check(ctx) {
		list = append(list, w.Topic)
	}
	return list
}

// tell is MustDo for a server of another test than t, such as of its parent.
func tell(t *testing.T, s *redistest.Server, args ...string) string {
	t.Helper()
	reply, err := s.Do(args...).ToAny()
	require.NoError(t, err, "%q", args)
	return fmt.Sprint(reply)
}

// serveOn accepts connections for a function until the test ends; then it closes
// those there are, and waits for its calls.
func serveOn(t *testing.T, l net.Listener, f func(net.Conn)) {
	var calls sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	calls.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			calls.Go(func() {
				defer func() {
					c.Close()
					mu.Lock()
					delete(open, c)
					mu.Unlock()
				}()
				f(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		calls.Wait()
	})
}
