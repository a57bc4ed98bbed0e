package postgres_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/postgres"
)

// crowd runs call once for each of so many requests, each of a name of its own, all
// at once. It returns what they return.
func crowd(n int, call func(req store.Request) error) []error {
	errs := make([]error, n)
	var callers sync.WaitGroup
	for i := range n {
		callers.Go(func() { errs[i] = call(request(fmt.Sprint("n", i), i, false)) })
	}
	callers.Wait()
	return errs
}

// TestTogetherEachHasItsOwnOutcome: of calls in one statement those of a free name or
// of a live lone hold are done, and the others have changed nothing.
func TestTogetherEachHasItsOwnOutcome(t *testing.T) {
	t.Parallel()
	s := start(t)
	locks, peer := open(t, s.url), open(t, s.url)
	before := hold(t, peer, request("held", 1, false))
	brief := request("expired", 2, false)
	brief.TTL = 100 * time.Millisecond
	hold(t, peer, brief)
	await(t, "a lease has ended", func() bool {
		return one(t, s.url, "SELECT count(*) FROM dlock_locks WHERE expires < clock_timestamp()") == 1
	})
	free, again := request("free", 3, false), request("free", 4, false)
	other := request("other", 5, false)
	tokens, errs := locks.TakeTogether(t.Context(), request("held", 6, false), request("expired", 7, false), free, other, again, free)
	if !errors.Is(errs[0], postgres.ErrNotDone) || !errors.Is(errs[1], postgres.ErrNotDone) || errs[3] != nil {
		t.Errorf("a held name, one with a dead row and a free one: got %v", errs)
	}
	if done := slices.Contains([]error{errs[2], errs[4]}, nil); !done || errs[2] == nil && errs[4] == nil || errs[5] == nil {
		t.Errorf("three requests of one name, the third a repetition of the first: got %v, %v, %v; want one of them done", errs[2], errs[4], errs[5])
	}
	for i, err := range errs {
		if err == nil && uint64(tokens[i]) <= before.Token {
			t.Errorf("token %d after %d", tokens[i], before.Token)
		}
	}
	if errs[2] != nil {
		free = again
	}
	wrong := refOf(request("held", 8, false))
	errs = locks.DropTogether(t.Context(), refOf(free), wrong, refOf(brief), refOf(other), refOf(other))
	if errs[0] != nil || !errors.Is(errs[1], postgres.ErrNotDone) || !errors.Is(errs[2], postgres.ErrNotDone) || errs[3] != nil || !errors.Is(errs[4], postgres.ErrNotDone) {
		t.Errorf("a hold, a wrong id, a dead hold, a hold twice: got %v", errs)
	}
	if n := one(t, s.url, "SELECT count(*) FROM dlock_locks WHERE expires > clock_timestamp()"); n != 1 {
		t.Errorf("%d live rows are left, want one", n)
	}
}

// TestTogetherBlockedNames: names that a transaction has locked do not hold up the
// calls of other names that travel with them.
func TestTogetherBlockedNames(t *testing.T) {
	for _, test := range []struct {
		name, block string
		held        bool // by another owner
		release     bool
		want        error // of the blocked calls, once the transaction has ended
	}{
		{"release, row guarded", "SELECT FROM dlock_locks WHERE name = $1 AND $2::bigint <> 0 FOR SHARE", false, true, nil},
		{"acquire, name locked", "SELECT pg_advisory_xact_lock($2::bigint) WHERE $1 <> ''::bytea", false, false, nil},
		{"acquire, row changing", "UPDATE dlock_locks SET short = short WHERE name = $1 AND $2::bigint <> 0", true, false, store.ErrHeld},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			locks := open(t, s.url+"&pool_max_conns=30")
			take := func(req store.Request) error {
				_, err := locks.Acquire(t.Context(), req)
				return err
			}
			const calls, blocked = 80, 8
			if test.release {
				crowd(calls, take)
			}
			tx, err := connect(t, s.url).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for n := range blocked {
				name := fmt.Sprint("n", n*calls/blocked)
				if test.held {
					hold(t, locks, request(name, 1000+n, false))
				}
				if _, err := tx.Exec(t.Context(), test.block, []byte(name), postgres.LockKey(name)); err != nil {
					t.Fatal(err)
				}
			}
			var returned atomic.Int64
			var errs []error
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				errs = crowd(calls, func(req store.Request) (err error) {
					defer returned.Add(1)
					if test.release {
						return locks.Release(t.Context(), refOf(req))
					}
					return take(req)
				})
			}()
			await(t, "the calls of the other names have returned", func() bool { return returned.Load() == calls-blocked })
			tx.Rollback(t.Context())
			<-ended
			for i, err := range errs {
				want := test.want
				if i%(calls/blocked) != 0 {
					want = nil
				}
				if !errors.Is(err, want) {
					t.Errorf("n%d: got %v, want %v", i, err, want)
				}
			}
		})
	}
}

// TestFault110_AnswerToManyLost: the connection ends after the server has committed a
// statement of many calls. The outcome of each is unknown, and repeating an id gives
// the same hold.
func TestFault110_AnswerToManyLost(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := s.StartProxy(t)
	locks := open(t, "postgres://dlock@"+p.Addr+"/"+s.database()+"?sslmode=disable&default_query_exec_mode=exec&poll=true")
	requests := []store.Request{request("a", 1, false), request("b", 2, false), request("c", 3, false)}
	unknown := func(errs []error) {
		t.Helper()
		for _, err := range errs {
			if err == nil || certain(err) || errors.Is(err, postgres.ErrNotDone) {
				t.Errorf("got %v, want an unknown outcome", err)
			}
		}
	}
	rows := func(want int) {
		t.Helper()
		await(t, "the server has committed", func() bool { return one(t, s.url, "SELECT count(*) FROM dlock_locks") == want })
	}
	p.SwallowAnswerTo("pg_try_advisory")
	_, errs := locks.TakeTogether(t.Context(), requests...)
	unknown(errs)
	rows(len(requests))
	for _, req := range requests {
		token := one(t, s.url, "SELECT token FROM dlock_locks WHERE name = $1", []byte(req.Name))
		if g := hold(t, locks, req); int(g.Token) != token || g.Holds != 1 {
			t.Errorf("repeated: got %+v, want the hold with token %d", g, token)
		}
	}
	fresh := []store.Request{request("d", 4, false), request("e", 5, false)}
	if _, errs := locks.TakeTogether(t.Context(), fresh...); errs[0] != nil || errs[1] != nil {
		t.Fatalf("got %v", errs)
	}
	p.SwallowAnswerTo("SKIP LOCKED")
	unknown(locks.DropTogether(t.Context(), refOf(fresh[0]), refOf(fresh[1])))
	rows(len(requests))
	for _, req := range fresh {
		if err := locks.Release(t.Context(), refOf(req)); !errors.Is(err, store.ErrLost) {
			t.Errorf("repeated release: got %v, want ErrLost", err)
		}
	}
}

// TestFault111_OneNameRefused: an error that undoes a statement of many calls, such as a
// refusal or a serialization failure, concerns one name only.
func TestFault111_OneNameRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := connect(t, s.url)
	if _, err := c.Exec(t.Context(), `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF NEW.name = 'n20' THEN RAISE EXCEPTION 'planted' USING ERRCODE = current_setting('dlock.code'); END IF; RETURN NEW; END $$;
		CREATE TRIGGER fail BEFORE INSERT ON dlock_locks FOR EACH ROW EXECUTE FUNCTION fail()`); err != nil {
		t.Fatal(err)
	}
	for code, refused := range map[string]bool{"42501": true, "53200": true, "40P01": false} {
		if _, err := c.Exec(t.Context(), fmt.Sprintf("ALTER DATABASE %s SET dlock.code = '%s'; TRUNCATE dlock_locks", s.database(), code)); err != nil {
			t.Fatal(err)
		}
		locks := open(t, s.url+"&pool_max_conns=8") // whose connections have the setting
		errs := crowd(60, func(req store.Request) error {
			_, err := locks.Acquire(t.Context(), req)
			return err
		})
		for i, err := range errs {
			if (err != nil) != (i == 20) || err != nil && errors.Is(err, store.ErrRefused) != refused {
				t.Errorf("%s, n%d: got %v", code, i, err)
			}
		}
	}
}

// TestFault114_TableStaysSmall: names that are used once leave no rows, and the
// table stays small. With DLOCK_PROVE=1 there are a million, and the limit is 30 MB.
func TestFault114_TableStaysSmall(t *testing.T) {
	pairs, limit, config := 11_000, 3500, []string{"autovacuum=off"}
	if os.Getenv("DLOCK_PROVE") != "" {
		pairs, limit, config = 1_000_000, 30_000_000/1024, nil
	}
	s := start(t, config...)
	locks := open(t, s.url+"&pool_max_conns=8")
	callers := 8
	if pairs > 100_000 {
		callers = 64
	}
	var workers sync.WaitGroup
	for w := range callers {
		workers.Go(func() {
			for i := w; i < pairs && !t.Failed(); i += callers {
				req := request(fmt.Sprintf("a name that is used once: %d", i), i, false)
				if g, err := locks.Acquire(t.Context(), req); err != nil || !g.Held {
					t.Errorf("Acquire: got %+v, %v", g, err)
				}
				if err := locks.Release(t.Context(), refOf(req)); err != nil {
					t.Errorf("Release: got %v", err)
				}
			}
		})
	}
	workers.Wait()
	if n := one(t, s.url, "SELECT count(*) FROM dlock_locks"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	kb := one(t, s.url, "SELECT pg_total_relation_size('dlock_locks') / 1024")
	t.Logf("after %d locks the table and its index have %d kB", pairs, kb)
	if kb > limit {
		t.Errorf("want %d kB at most", limit)
	}
}
