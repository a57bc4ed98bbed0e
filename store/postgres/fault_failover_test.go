package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/internal/proxytest"
	"github.com/dlock-go/dlock/store"
)

// TestFault113_FailoverToReplica: what the replica has goes on. A hold that it
// does not have is told to be lost. Tokens go on growing, as no log record of the
// sequence is lost.
func TestFault113_FailoverToReplica(t *testing.T) {
	t.Parallel()
	s := start(t, "wal_level=replica")
	replica := s.StartReplica(t)
	locks := open(t, postgrestest.URLOfBoth(s.url, s.Server, replica))
	events := hear(locks)

	kept, lost := request("kept", 1, false), request("lost", 2, false)
	kept.TTL = time.Minute // longer than the fail-over takes
	hold(t, locks, kept)
	s.HasReplayed(replica)
	replica.Stop()
	last := hold(t, locks, lost).Token
	s.Crash()
	replica.Launch()
	replica.Promote()

	var errs []error
	await(t, "the store answers again", func() bool {
		errs = locks.Renew(t.Context(), []store.Ref{refOf(kept), refOf(lost)})
		return errs[0] == nil
	})
	if !errors.Is(errs[1], store.ErrLost) {
		t.Errorf("a hold that was not replicated: got %v, want ErrLost", errs[1])
	}
	wantEvent(t, events, "after the fail-over", func(e store.Event) bool { return e == store.Event{} })
	if g := hold(t, locks, request("lost", 3, false)); g.Token <= last {
		t.Errorf("the token after a fail-over is %d, and %d was there before", g.Token, last)
	}
}

// TestFault113_SilentHost: the first of two hosts is switched off, so it refuses nothing and answers nothing. The
// second goes on, for a handle that is open, for its connection that listens, and for a new handle.
func TestFault113_SilentHost(t *testing.T) {
	t.Parallel()
	s := start(t, "wal_level=replica")
	replica := s.StartReplica(t)
	wire := proxytest.Start(t, s.Addr)
	url := strings.Replace(postgrestest.URLOfBoth(s.url, s.Server, replica), s.Addr, wire.Addr, 1)
	locks := open(t, url)
	events := hear(locks)
	kept := request("kept", 1, false)
	kept.TTL = time.Minute
	hold(t, locks, kept)
	s.HasReplayed(replica)
	wire.Blackhole(true)
	replica.Promote()
	await(t, "the store answers again", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		return locks.Renew(ctx, []store.Ref{refOf(kept)})[0] == nil
	})
	wire.Cut()
	wantEvent(t, events, "after the fail-over", func(e store.Event) bool { return e == store.Event{} })
	hold(t, open(t, url), request("of a new handle", 2, false))
}

// TestFault113_CrashKeepsLocks: a server that crashes and starts again has all
// that it granted.
func TestFault113_CrashKeepsLocks(t *testing.T) {
	t.Parallel()
	s := start(t)
	locks := open(t, s.url)
	holder, waiter := request("n", 1, false), request("n", 2, true)
	holder.TTL, waiter.WaitTTL = time.Minute, time.Minute // longer than the server takes to start
	first := hold(t, locks, holder)
	queue(t, locks, waiter)
	s.Crash()
	if err := locks.Renew(t.Context(), []store.Ref{refOf(holder)})[0]; err == nil || certain(err) {
		t.Errorf("without a server: got %v, want an unknown outcome", err)
	}
	s.Launch()
	await(t, "the hold is renewed", func() bool { return locks.Renew(t.Context(), []store.Ref{refOf(holder)})[0] == nil })
	if err := locks.Release(t.Context(), refOf(holder)); err != nil {
		t.Errorf("Release: %v", err)
	}
	if g := hold(t, locks, waiter); g.Token <= first.Token {
		t.Errorf("got %+v, want a token greater than %d", g, first.Token)
	}
}
