package lifecycle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Without a logger nothing is printed, not even by slog's default logger.
func TestNilLoggerIsSilent(t *testing.T) {
	printed := captureDefaultLog(t)
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{TTL: time.Second})
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		s.GoDown()
		_, err := c.Mutex("n").TryLockContext(t.Context())
		require.Error(t, err)
		<-h.Done()
		time.Sleep(time.Minute)
		require.Error(t, h.Unlock())
		s.Recover()
	})
	assert.Empty(t, printed())
}

// captureDefaultLog returns a function that returns everything the default loggers have printed
// since.
func captureDefaultLog(t *testing.T) func() string {
	var printed lines
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&printed, nil)))
	log.SetOutput(&printed)
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(os.Stderr)
	})
	return printed.String
}

// lines is a buffer that several goroutines may write to.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Ids and owners are capabilities. No log line, error or panic shows one of them whole.
func TestSecretsStayOutOfLogsAndErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		var secrets sync.Map
		note := func(req store.Request) {
			secrets.Store(req.ID, true)
			secrets.Store(req.Owner, true)
		}
		honest := func(ctx context.Context, req store.Request) (store.Grant, error) {
			note(req)
			return s.Store.Acquire(ctx, req)
		}
		var printed lines
		level := &slog.HandlerOptions{Level: slog.LevelDebug - 10}
		c := coretest.Open(t, s, &dlock.Options{
			TTL: time.Second, Logger: slog.New(slog.NewTextHandler(&printed, level)),
			OnLost: func(h *dlock.Hold) { fmt.Fprintf(&printed, "%v %s\n", h.Err(), h.Owner().GoString()) },
		})
		say := func(_ any, err error) { fmt.Fprintf(&printed, "%v %+v %q %#v\n", err, err, err, errors.Unwrap(err)) }
		owner := dlock.NewOwner()
		secrets.Store(owner.String(), true)
		m := c.RWMutex("m").As(owner)
		s.OnAcquire(honest)

		// A loss by the clock, re-entry into it, and a loss that the release finds.
		h := coretest.MustLock(t, t.Context(), m)
		s.GoDown()
		<-h.Done()
		say(m.LockContext(t.Context()))
		func() {
			defer func() { fmt.Fprintln(&printed, recover()) }()
			m.Lock()
		}()
		say(nil, h.Unlock())
		time.Sleep(time.Minute)
		s.Recover()
		s.OnAcquire(honest)
		h = coretest.MustLock(t, t.Context(), m)
		_, err := s.Store.(store.Breaker).Break(t.Context(), "m")
		require.NoError(t, err)
		say(nil, h.Unlock())

		// Waits that fail in every way.
		h = coretest.MustRLock(t, t.Context(), c.RWMutex("m"))
		other := coretest.MustRLock(t, t.Context(), m)
		say(m.LockContext(t.Context())) // an upgrade
		say(c.Mutex("m").TryLockContext(t.Context()))
		ctx, cancel := context.WithTimeout(h.Context(t.Context()), time.Millisecond)
		say(c.Mutex("n").LockContext(ctx))
		cancel()
		s.GoSilent()
		say(c.Mutex("n").LockContext(t.Context()))
		s.GoDown()
		say(c.Mutex("n").LockContext(t.Context()))
		say(nil, h.Unlock())
		say(nil, other.Unlock())
		time.Sleep(time.Minute)
		for _, refusal := range []error{store.ErrForeignKey, store.ErrRefused, store.ErrLost} {
			s.OnAcquire(func(_ context.Context, req store.Request) (store.Grant, error) {
				note(req)
				return store.Grant{}, refusal
			})
			say(c.Mutex("n").LockContext(t.Context()))
		}
		for _, text := range []string{"", owner.String()[1:], strings.ToUpper(owner.String()), owner.String() + "0"} {
			say(dlock.ParseOwner(text))
		}
		s.Recover()
		say(nil, c.Close())
		say(c.Mutex("n").LockContext(t.Context()))
		synctest.Wait()

		text := printed.String()
		assert.Contains(t, text, "hold lost")
		n := 0
		secrets.Range(func(secret, _ any) bool {
			n++
			assert.NotContains(t, strings.ToLower(text), secret.(string)[:8])
			return true
		})
		assert.Greater(t, n, 8)
	})
}
