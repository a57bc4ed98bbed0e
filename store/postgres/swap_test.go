package postgres_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
)

// TestSwap: a record is swapped only while the decision on it is right.
func TestSwap(t *testing.T) {
	t.Parallel()
	together(t, start(t), map[string]func(*testing.T, *site){
		"SwapChecksTheClock":      swapChecksTheClock,
		"AskingAgainPromotes":     askingAgainPromotes,
		"AskingAgainAfterRelease": askingAgainAfterRelease,
		"Ages":                    ages,
	})
}

// swapChecksTheClock: a decision takes effect only while it is right, and never on
// a row that is locked, for which it does not wait.
func swapChecksTheClock(t *testing.T, s *site) {
	locks := open(t, s.url)
	hold(t, locks, request("n", 1, false))
	queue(t, locks, request("n", 2, true))
	for _, test := range []struct {
		what          string
		since, before time.Duration
		want          bool
	}{
		{"right now", -time.Minute, time.Minute, true},
		{"right until before now", -time.Minute, -time.Second, false},
		{"right from later", time.Minute, time.Hour, false},
	} {
		if got, err := locks.Swap(t.Context(), "n", test.since, test.before); err != nil || got != test.want {
			t.Errorf("%s: got %v, %v, want %v", test.what, got, err, test.want)
		}
	}
	tx, err := connect(t, s.url).Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "SELECT FROM dlock_locks FOR SHARE")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if got, err := locks.Swap(t.Context(), "n", -time.Minute, time.Minute); err != nil || got {
		t.Errorf("a locked row: got %v, %v, want it left alone", got, err)
	}
}

// askingAgainPromotes: a waiter that asks again when the holder's lease has ended
// is granted, with a greater token, though this handle remembers the record.
func askingAgainPromotes(t *testing.T, s *site) {
	locks, peer := open(t, s.url), open(t, s.url)
	holder, waiter := request("n", 1, false), request("n", 2, true)
	holder.TTL = 3 * time.Second
	first := hold(t, locks, holder)
	queue(t, peer, waiter)
	queue(t, peer, waiter)
	var g store.Grant
	await(t, "the waiter is granted", func() bool {
		var err error
		g, err = peer.Acquire(t.Context(), waiter)
		return err == nil && g.Held
	})
	if g.Token <= first.Token {
		t.Errorf("token %d after %d", g.Token, first.Token)
	}
	if err := locks.Renew(t.Context(), []store.Ref{refOf(holder)})[0]; err == nil {
		t.Error("the old holder's renewal: got nil")
	}
}

// askingAgainAfterRelease: a place that was given up is not there again for a
// handle that remembers it: the request gets a place at the end.
func askingAgainAfterRelease(t *testing.T, s *site) {
	locks, peer := open(t, s.url), open(t, s.url)
	hold(t, locks, request("n", 1, false))
	first, second := request("n", 2, true), request("n", 3, true)
	queue(t, locks, first)
	queue(t, locks, first)
	queue(t, peer, second)
	release(t, peer, first)
	if g, err := locks.Acquire(t.Context(), first); err != nil || g.Held || g.Position != 2 {
		t.Errorf("got %+v, %v, want the second place", g, err)
	}
}

// ages: the age of a lone hold is in a column, which a renewal leaves as it is.
func ages(t *testing.T, s *site) { locktest.TellsAges(t, open(t, s.url), "n") }
