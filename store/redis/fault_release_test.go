package redis_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
)

// The server has released and its answer is lost. Asking again finds nothing,
// which is what success looks like then.
func TestFault06ReleaseReplyLost(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]redistest.Action{"cut": redistest.CutReply, "mute": redistest.SwallowReply} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			o := shortLease
			o.OnLost = func(*dlock.Hold) { t.Error("OnLost was called") }
			c, rival := s.far(o), s.near(shortLease)
			h := s.lock(c, "a")
			waits := begin(t, rival, "a")
			s.queued("a", 1)
			s.on(release, fault, 1)
			err := h.Unlock()
			switch name {
			case "mute": // Unlock's own time is used up before it can ask again
				mustBe(t, err, dlock.ErrUnavailable)
			default:
				if err != nil {
					t.Fatal(err)
				}
				if n := len(s.calls(release)); name == "cut" && n != 2 {
					t.Fatalf("%d releases, want 2", n)
				}
			}
			next, _ := waits.granted(soon)
			s.holds(next)
			s.proxy.Cut() // the mute connection
			s.holds(next)
			unlock(t, next)
			s.over("a", o)
		})
	}
	// Somebody on the way repeats the request, and the client hears the second
	// answer, which is as good as that of a hold that was lost. It takes nothing
	// from the next holder.
	t.Run("repeated on the way", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		c, rival := s.far(shortLease), s.near(shortLease)
		h := s.lock(c, "a")
		waits := begin(t, rival, "a")
		s.queued("a", 1)
		s.on(release, redistest.Twice, 1)
		mustBe(t, h.Unlock(), dlock.ErrLost)
		next, _ := waits.granted(soon)
		s.holds(next)
		unlock(t, next)
		s.over("a", shortLease)
	})
}

// A release arrives again, or late, when the same owner has taken the lock anew.
// It takes nothing away: it names an acquisition, not an owner.
func TestFault07StaleReleaseAfterNewAcquire(t *testing.T) {
	t.Parallel()
	t.Run("store", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		h := open(t, s.proxy.URL())
		first, second := request("a", 1), request("a", 2)
		second.Owner = first.Owner
		if _, err := h.Acquire(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		s.on(release, redistest.Hold, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		mustBe(t, h.Release(ctx, refTo(first)), context.DeadlineExceeded)

		if err := s.direct.Release(t.Context(), refTo(first)); err != nil {
			t.Fatal(err)
		}
		g, err := s.direct.Acquire(t.Context(), second)
		if err != nil {
			t.Fatal(err)
		}
		s.unhold(1)
		if state := s.state("a"); len(state.Holders) != 1 || state.Holders[0].Token != g.Token {
			t.Fatalf("the late release has left %+v", state.Holders)
		}
		mustBe(t, s.direct.Release(t.Context(), refTo(first)), store.ErrLost)
		if err := s.direct.Release(t.Context(), refTo(second)); err != nil {
			t.Fatal(err)
		}
		s.empty(0)
	})
	t.Run("client", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		o := dlock.Options{TTL: 8 * time.Second, StoreTimeout: time.Second}
		c := newClient(t, newStore(t, manyConnections(t, s.proxy.Addr)), o)
		lock := c.Mutex("a").As(dlock.NewOwner())
		first, err := lock.LockContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.on(release, redistest.Hold, 1)
		mustBe(t, first.Unlock(), dlock.ErrUnavailable)
		poll(t, "a release that has overtaken", patience, func() bool { return len(s.keys()) == 0 })
		second, err := lock.LockContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.unhold(1)
		s.holds(second)
		unlock(t, second)
		s.over("a", o)
	})
}

// The release never gets through. The holder is out at once, Unlock says that
// it does not know, others get in when the lease is over, and the client gives
// up trying some time after that.
func TestFault08ReleaseLost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var log lockedBuffer
	o := dlock.Options{TTL: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	c, rival := s.far(o), s.near(patient)
	h := s.lock(c, "a")
	waits := begin(t, rival, "a")
	s.queued("a", 1)
	s.proxy.Blackhole(true)
	began := time.Now()
	result := make(chan error)
	go func() { result <- h.Unlock() }()
	<-h.Done()
	if took := time.Since(began); took > late {
		t.Errorf("the holder was out after %v", took)
	}
	mustBe(t, <-result, dlock.ErrUnavailable)
	if took := time.Since(began); took > o.TTL/3+late {
		t.Errorf("Unlock took %v", took)
	}
	next, _ := waits.granted(o.TTL + late)
	s.holds(next)
	poll(t, "it gives up", 3*o.TTL+soon, func() bool { return strings.Contains(log.String(), "gave up releasing") })
	s.holds(next)
	unlock(t, next)
	s.over("a", o)
	// Nothing is under way any more that would have to be cut off.
	began = time.Now()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > late {
		t.Errorf("Close took %v", took)
	}
	s.proxy.Blackhole(false)
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
