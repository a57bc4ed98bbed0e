package matrix

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// redisServer is a server that has learnt the scripts, so that a call is one
// EVALSHA, or HDEL for a release.
type redisServer struct {
	*redistest.Server
	scripts map[string]request // by their hashes
}

func startRedis(t *testing.T) server {
	s := redisServer{redistest.Start(t), map[string]request{}}
	proxy := redistest.StartProxy(t, s.Addr)
	h := openRedis(t, proxy.URL())
	r := locktest.Request("learn", 1)
	for _, call := range []struct {
		what request
		do   func() error
	}{
		{acquire, func() error { _, err := h.Acquire(t.Context(), r); return err }},
		{renew, func() error { return h.Renew(t.Context(), []store.Ref{locktest.RefTo(r)})[0] }},
		{release, func() error {
			if err := h.Release(t.Context(), locktest.RefTo(r)); err != nil {
				return err
			}
			// It was deleted by HDEL. The script is asked when there is nothing to delete.
			if err := h.Release(t.Context(), locktest.RefTo(r)); !errors.Is(err, store.ErrLost) {
				return fmt.Errorf("a second release: %w", err)
			}
			return nil
		}},
	} {
		proxy.Plan(func(_ int, args []string) redistest.Action {
			if args[0] == "EVALSHA" {
				s.scripts[args[1]] = call.what
			}
			return redistest.Pass
		})
		if err := call.do(); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func openRedis(t *testing.T, url string) store.Store {
	t.Helper()
	s, err := redis.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func (s redisServer) near(t *testing.T) store.Store { return openRedis(t, s.URL()) }

func (s redisServer) far(t *testing.T) (store.Store, wire) {
	proxy, w := s.wire(t)
	return openRedis(t, proxy.URL()), w
}

func (s redisServer) wire(t *testing.T) (*redistest.Proxy, *plan) {
	proxy := redistest.StartProxy(t, s.Addr)
	w := &plan{repair: proxy.Cut}
	proxy.Plan(func(_ int, args []string) redistest.Action {
		what := s.scripts[args[1]]
		if args[0] == "HDEL" { // the release of a hold that may be a lone one
			what = release
		}
		switch w.meets(what) {
		case cut:
			return redistest.CutReply
		case mute:
			return redistest.SwallowReply
		case duplicate:
			return redistest.Twice
		case late:
			// What follows on the connection is late with it.
			proxy.Delay(lateBy)
			time.AfterFunc(lateBy/2, func() { proxy.Delay(0) })
		}
		return redistest.Pass
	})
	return proxy, w
}
