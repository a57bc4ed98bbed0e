package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/postgres"
)

// TestBlocked: what stands still elsewhere holds up nothing else.
func TestBlocked(t *testing.T) {
	t.Parallel()
	together(t, start(t), map[string]func(*testing.T, *site){
		"OneTableTwoNames":             oneTableTwoNames,
		"BlockedNamesLeaveRenewals":    guardedNamesLeaveRenewals,
		"DeletedNamesLeaveRenewals":    deletedNamesLeaveRenewals,
		"BlockedReleasesLeaveRenewals": blockedReleasesLeaveRenewals,
		"ABlockedNameHidesNoOther":     aBlockedNameHidesNoOther,
		"MigrateInTransaction":         migrateInTransaction,
		"FewNamesInATransaction":       fewNamesInATransaction,
	})
}

// stopped is a handle that stands still in the middle of a transaction on a name, as a
// process does that is stopped. It goes on at the end of the test.
func stopped(ctx context.Context, t *testing.T, locks *postgres.Store, name string) {
	t.Helper()
	inside, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		locks.InTransaction(ctx, name, func() {
			close(inside)
			<-goOn
		})
	}()
	t.Cleanup(func() {
		close(goOn)
		<-ended
	})
	<-inside
}

// TestFault111_StoppedInTransaction: a process that is stopped in the middle of a
// transaction does not keep the name for longer than some seconds.
func TestFault111_StoppedInTransaction(t *testing.T) {
	t.Parallel()
	s := start(t)
	locks, peer := open(t, s.url), open(t, s.url)
	stopped(context.Background(), t, locks, "n")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if g, err := peer.Acquire(ctx, request("n", 1, false)); err != nil || !g.Held {
		t.Errorf("got %+v, %v, want the lock", g, err)
	}
}

// TestFault111_StoppedCall: a call that is stopped in the middle of its transaction keeps
// the name for no longer than its context lasts. Waiters may have short leases, and would
// give up.
func TestFault111_StoppedCall(t *testing.T) {
	t.Parallel()
	s := start(t)
	locks, peer := open(t, s.url), open(t, s.url)
	brief, end := context.WithTimeout(context.Background(), time.Second)
	defer end()
	stopped(brief, t, locks, "n")
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if g, err := peer.Acquire(ctx, request("n", 1, false)); err != nil || !g.Held {
		t.Errorf("got %+v, %v, want the lock", g, err)
	}
}

// oneTableTwoNames: handles that name the table with and without its schema exclude
// each other.
func oneTableTwoNames(t *testing.T, s *site) {
	locks, peer := open(t, s.url), open(t, s.url+"&table=public.dlock_locks")
	stopped(context.Background(), t, locks, "n")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if g, err := peer.Acquire(ctx, request("n", 1, false)); err == nil {
		t.Errorf("got %+v in the middle of a transaction on the name", g)
	}
}

// fewNamesInATransaction: the rows of forty holds are locked, so a transaction has to renew them. It has no more than 32
// advisory locks: the server's table of locks has room for 64 of each connection.
func fewNamesInATransaction(t *testing.T, s *site) {
	locks, c := open(t, s.url), connect(t, s.url)
	var refs []store.Ref
	for i := range 40 {
		req := request(fmt.Sprint("few", i), 100+i, false)
		req.TTL = time.Minute
		hold(t, locks, req)
		refs = append(refs, refOf(req))
	}
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT name FROM dlock_locks FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	renewed := make(chan []error, 1)
	go func() { renewed <- locks.Renew(t.Context(), refs) }()
	await(t, "the renewal waits for a row", func() bool {
		return one(t, s.url, "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND datname = current_database()") > 0
	})
	most := one(t, s.url, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"+
		" AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if most == 0 || most > 32 {
		t.Errorf("the transaction has %d advisory locks, want 1 to 32", most)
	}
	for _, err := range <-renewed {
		if err != nil {
			t.Errorf("Renew: got %v", err)
		}
	}
}

// TestVacuumLeavesRenewalsAConnection: a VACUUM takes long, and transactions have all connections but the one that they
// leave free.
func TestVacuumLeavesRenewalsAConnection(t *testing.T) {
	t.Parallel()
	s := start(t, "vacuum_cost_delay=100", "vacuum_cost_limit=1")
	c := connect(t, s.url)
	if _, err := c.Exec(t.Context(), "INSERT INTO dlock_locks SELECT i::text::bytea, '', now() FROM generate_series(1, 20000) AS i"); err != nil {
		t.Fatal(err)
	}
	locks := open(t, s.url+"&pool_max_conns=2&poll=true")
	mine := request("mine", 1, false)
	mine.TTL = time.Minute
	hold(t, locks, mine)
	stopped(context.Background(), t, locks, "n")
	locks.Vacuum()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // the transaction may stand still for five
	defer cancel()
	for began := time.Now(); time.Since(began) < time.Second; {
		if err := locks.Renew(ctx, []store.Ref{refOf(mine)})[0]; err != nil {
			t.Fatalf("Renew: got %v", err)
		}
	}
}

func guardedNamesLeaveRenewals(t *testing.T, s *site) {
	blockedNamesLeaveRenewals(t, s, func(tx pgx.Tx, name string, token uint64) error {
		return postgres.Guard(t.Context(), tx, held{name, token})
	})
}

func deletedNamesLeaveRenewals(t *testing.T, s *site) {
	blockedNamesLeaveRenewals(t, s, func(tx pgx.Tx, name string, _ uint64) error {
		_, err := tx.Exec(t.Context(), "DELETE FROM dlock_locks WHERE name = $1", []byte(name))
		return err
	})
}

// blockedNamesLeaveRenewals: while other transactions keep more names than the
// handle has connections, its other locks are renewed and waiters are woken.
func blockedNamesLeaveRenewals(t *testing.T, s *site, block func(tx pgx.Tx, name string, token uint64) error) {
	locks, c := open(t, s.url+"&pool_max_conns=4"), connect(t, s.url)
	mine := request("mine", 1, false)
	hold(t, locks, mine)
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	const blocked = 6
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	for i := range blocked {
		req := request(fmt.Sprint("blocked", i), 10+i, false)
		g := hold(t, locks, req)
		if err := block(tx, req.Name, g.Token); err != nil {
			t.Fatal(err)
		}
	}
	for i := range blocked {
		go func() {
			locks.Acquire(ctx, request(fmt.Sprint("blocked", i), 20+i, true))
			ended <- struct{}{}
		}()
	}
	defer func() {
		cancel()
		for range blocked {
			<-ended
		}
	}()
	await(t, "the calls wait for the blocked names", func() bool {
		return one(t, s.url, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") >= 3
	})
	brief, cancelBrief := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancelBrief()
	if err := locks.Renew(brief, []store.Ref{refOf(mine)})[0]; err != nil {
		t.Errorf("Renew: got %v", err)
	}
	if names, err := locks.List(brief); err != nil || len(names) != blocked+1 {
		t.Errorf("List: got %q, %v, want %d names", names, err, blocked+1)
	}
	if err := locks.Release(brief, refOf(mine)); err != nil {
		t.Errorf("Release: got %v", err)
	}
}

// blockedReleasesLeaveRenewals: the same while the holds of the blocked names are released.
func blockedReleasesLeaveRenewals(t *testing.T, s *site) {
	locks, c := open(t, s.url+"&pool_max_conns=4"), connect(t, s.url)
	mine := request("mine", 1, false)
	hold(t, locks, mine)
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for i := range 6 {
		req := request(fmt.Sprint("release", i), 10+i, false)
		g := hold(t, locks, req)
		if err := postgres.Guard(t.Context(), tx, held{req.Name, g.Token}); err != nil {
			t.Fatal(err)
		}
		running.Go(func() { locks.Release(ctx, refOf(req)) })
	}
	await(t, "the releases wait for the blocked rows", func() bool {
		return one(t, s.url, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") >= 3
	})
	brief, cancelBrief := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancelBrief()
	if err := locks.Renew(brief, []store.Ref{refOf(mine)})[0]; err != nil {
		t.Errorf("Renew: got %v", err)
	}
}

// aBlockedNameHidesNoOther: a handle that polls looks for all its waiters together. One
// name that is blocked delays the events of the others by seconds at most.
func aBlockedNameHidesNoOther(t *testing.T, s *site) {
	locks, peer, c := open(t, s.url+"&poll=true"), open(t, s.url), connect(t, s.url)
	events := make(chan store.Event, 100)
	defer locks.Listen(func(e store.Event) { events <- e })()
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	free := request("free", 1, false)
	g := hold(t, peer, request("stuck", 2, false))
	hold(t, peer, free)
	queue(t, locks, request("free", 3, true))
	queue(t, locks, request("stuck", 4, true))
	if err := postgres.Guard(t.Context(), tx, held{"stuck", g.Token}); err != nil {
		t.Fatal(err)
	}
	await(t, "the look waits for the blocked row", func() bool {
		return one(t, s.url, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") > 0
	})
	brief, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := peer.Release(brief, refOf(free)); err != nil {
		t.Fatalf("Release: got %v", err)
	}
	select {
	case e := <-events:
		if e.ID != request("free", 3, true).ID || e.Token == 0 {
			t.Errorf("got the event %+v", e)
		}
	case <-brief.Done():
		t.Error("no event came for the lock that was released")
	}
}

// TestCloseDoesNotWait: Close returns soon while calls wait for a table that another
// transaction has locked, and while the table is vacuumed slowly.
func TestCloseDoesNotWait(t *testing.T) {
	t.Parallel()
	s := start(t, "vacuum_cost_delay=100", "vacuum_cost_limit=1")
	c := connect(t, s.url)
	if _, err := c.Exec(t.Context(), "INSERT INTO dlock_locks SELECT i::text::bytea, '', now() FROM generate_series(1, 20000) AS i"); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		what   string
		locked bool
		call   func(*postgres.Store)
	}{
		{"vacuum", false, func(s *postgres.Store) { s.Vacuum() }},
		{"List", true, func(s *postgres.Store) { s.List(context.Background()) }},
		{"Check", true, func(s *postgres.Store) { s.Check(context.Background()) }},
		{"Renew", true, func(s *postgres.Store) {
			s.Renew(context.Background(), []store.Ref{refOf(request("n", 1, false))})
		}},
	} {
		tx, err := c.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		locks := open(t, s.url)
		if test.locked {
			if _, err := tx.Exec(t.Context(), "LOCK TABLE dlock_locks IN ACCESS EXCLUSIVE MODE"); err != nil {
				t.Fatal(err)
			}
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			test.call(locks)
		}()
		await(t, test.what+" is under way", func() bool {
			return one(t, s.url, "SELECT count(*) FROM pg_stat_activity WHERE query ~ 'dlock_locks' AND pid <> pg_backend_pid() AND state = 'active'") > 0
		})
		closed := make(chan struct{})
		go func() {
			locks.Close()
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(15 * time.Second):
			t.Errorf("%s: Close has not returned after 15 s", test.what)
			s.Exec("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()")
		}
		tx.Rollback(context.Background())
		<-closed
		<-ended
	}
}

// migrateInTransaction: Migrate leaves a transaction of the caller's open.
func migrateInTransaction(t *testing.T, s *site) {
	url := s.URL()
	c := connect(t, url)
	tx, err := c.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "CREATE TABLE mine ()")
	}
	if err == nil {
		err = postgres.Migrate(t.Context(), tx, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Errorf("Rollback: %v", err)
	}
	if n := one(t, url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"); n != 0 {
		t.Errorf("%d tables are there after the rollback", n)
	}
	err = pgx.BeginFunc(t.Context(), c, func(tx pgx.Tx) error { return postgres.Migrate(t.Context(), tx, "") })
	if err != nil {
		t.Fatal(err)
	}
	hold(t, open(t, url), request("n", 1, false))
}
