package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
)

// counting starts a server that counts the statements of clients. took says how many
// a function causes.
func counting(t *testing.T) (s *site, took func(f func()) int) {
	s = start(t, "shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track_utility=on")
	if _, err := connect(t, s.url).Exec(t.Context(), "CREATE EXTENSION pg_stat_statements"); err != nil {
		t.Fatal(err)
	}
	count := func() int {
		return one(t, s.url, "SELECT coalesce(sum(calls), 0)::int FROM pg_stat_statements WHERE query ~ 'dlock_locks|advisory|^BEGIN|^COMMIT|^ROLLBACK|pg_notify|clock_timestamp' AND query !~ 'pg_stat'")
	}
	return s, func(f func()) int {
		before := count()
		f()
		return count() - before
	}
}

// TestRoundTrips: how many statements calls take on the server.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	s, took := counting(t)
	locks := open(t, s.url)
	locks.Created(-1000) // no sweep while statements are counted
	req := request("n", 1, false)
	if n := took(func() { hold(t, locks, req) }); n != 1 {
		t.Errorf("a free lock took %d statements, want 1", n)
	}
	if n := took(func() { locks.Release(t.Context(), refOf(req)) }); n != 1 {
		t.Errorf("a release took %d statements, want 1", n)
	}
	var refs []store.Ref
	for i := range 400 {
		req := request(strings.Repeat("x", i+1), i, false)
		hold(t, locks, req)
		refs = append(refs, refOf(req))
	}
	if n := took(func() { locks.Renew(t.Context(), refs) }); n != 1 {
		t.Errorf("400 renewals took %d statements, want 1", n)
	}
	for _, ref := range refs[:300] { // no lone holds any more
		waiter := request(ref.Name, 1000, true)
		waiter.ID = "f" + ref.ID[1:]
		queue(t, locks, waiter)
	}
	if n := took(func() {
		for i, err := range locks.Renew(t.Context(), refs) {
			if err != nil {
				t.Errorf("Renew of %q: %v", refs[i].Name, err)
			}
		}
	}); n > 2 {
		t.Errorf("400 renewals, 300 of them with waiters, took %d statements, want 2 at most", n)
	}
}

// TestWaiterCost: a waiter that asks again takes one statement, and one more if the
// record has changed since. The renewal of a hold with waiters takes two.
func TestWaiterCost(t *testing.T) {
	t.Parallel()
	s, took := counting(t)
	locks, peer := open(t, s.url), open(t, s.url)
	locks.Created(-1000) // no sweep while statements are counted
	holder, waiter := request("n", 1, false), request("n", 2, true)
	hold(t, locks, holder)
	queue(t, peer, waiter)
	ask := func() { queue(t, peer, waiter) }
	renew := func() {
		if err := locks.Renew(t.Context(), []store.Ref{refOf(holder)})[0]; err != nil {
			t.Errorf("Renew: %v", err)
		}
	}
	if n := took(ask); n != 2 {
		t.Errorf("asking again for the first time took %d statements, want 2", n)
	}
	if n := took(ask); n != 1 {
		t.Errorf("asking again took %d statements, want 1", n)
	}
	if n := took(renew); n != 2 {
		t.Errorf("a renewal took %d statements, want 2", n)
	}
	if n := took(ask); n != 2 {
		t.Errorf("asking again after a renewal took %d statements, want 2", n)
	}
}

// TestIdleWaiters: 200 goroutines that wait while another process holds the lock cost at
// most 2 statements a second with a lease of 10 s. Here the lease is a fifth of it, so
// all is five times as fast; the bound leaves room for half as much again.
func TestIdleWaiters(t *testing.T) {
	t.Parallel()
	s, took := counting(t)
	options := &dlock.Options{TTL: 2 * time.Second, WaitTTL: time.Second}
	client := func() *dlock.Client {
		c, err := dlock.New(open(t, s.url), options)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	holder, others := client(), client()
	held, err := holder.Mutex("n").LockContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	for range 200 {
		go func() {
			_, err := others.Mutex("n").LockContext(ctx)
			ended <- err
		}()
	}
	await(t, "all wait", func() bool {
		state, err := holder.Inspect(t.Context(), "n")
		return err == nil && len(state.Queue) == 1 && others.Stats().Waiters == 200
	})
	began := time.Now()
	n := took(func() {
		await(t, "the window is over", func() bool { return time.Since(began) > 2*options.TTL })
	})
	elapsed := time.Since(began)
	if most := 1.5 * 2 * 5 * elapsed.Seconds(); float64(n) > most {
		t.Errorf("%d statements in %v, want %.0f at most", n, elapsed, most)
	}
	if n == 0 || held.Err() != nil {
		t.Errorf("%d statements, and the holder has %v: nothing was shown", n, held.Err())
	}
	cancel()
	for range 200 {
		if err := <-ended; err == nil {
			t.Error("a waiter has the lock")
		}
	}
	for _, c := range []*dlock.Client{holder, others} {
		c.Close()
	}
}
