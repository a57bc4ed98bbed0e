package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/postgres"
)

// TestFault110_AnswerLost: the connection ends after the server has committed. The
// outcome is unknown, and repeating the id gives the same hold.
func TestFault110_AnswerLost(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := s.StartProxy(t)
	// In this mode every statement travels as text, which the proxy recognizes.
	locks := open(t, "postgres://dlock@"+p.Addr+"/"+s.database()+"?sslmode=disable&default_query_exec_mode=exec&poll=true")
	direct := open(t, s.url)
	for name, word := range map[string]string{"lone": "INSERT INTO", "contended": "DO UPDATE"} {
		req := request(name, 1, false)
		if name == "contended" { // a second hold of its owner takes the transaction
			other := request(name, 2, false)
			other.Owner = req.Owner
			hold(t, locks, other)
			locks.Acquire(t.Context(), request(name, 3, false))
		}
		p.SwallowAnswerTo(word)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err := locks.Acquire(ctx, req)
		cancel()
		if err == nil || certain(err) {
			t.Fatalf("%s: got %v, want an unknown outcome", name, err)
		}
		var kept store.State
		await(t, "the request was applied", func() bool {
			kept, err = direct.Inspect(t.Context(), name)
			return err == nil && len(kept.Holders) > 0 && kept.Holders[len(kept.Holders)-1].ID == store.Short(req.ID)
		})
		g := hold(t, locks, req)
		if g.Token != kept.Holders[len(kept.Holders)-1].Token || g.Holds != len(kept.Holders) {
			t.Errorf("%s: repeated: got %+v, want the hold %+v", name, g, kept.Holders)
		}
		p.SwallowAnswerTo("DELETE FROM")
		if name == "contended" {
			p.SwallowAnswerTo(word)
		}
		if err := locks.Release(t.Context(), refOf(req)); err == nil || certain(err) {
			t.Errorf("%s: release: got %v, want an unknown outcome", name, err)
		}
		await(t, "the release was applied", func() bool {
			return errors.Is(locks.Release(t.Context(), refOf(req)), store.ErrLost)
		})
	}
}

// TestFault110_BackendsTerminated: while an operator ends connections, no two
// owners hold a lock, and no outcome is a wrong refusal.
func TestFault110_BackendsTerminated(t *testing.T) {
	t.Parallel()
	s := start(t)
	locks := open(t, s.url+"&pool_max_conns=6")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var workers sync.WaitGroup
	var inside sync.Mutex // of the section; never waited for
	unknown, grants := 0, 0
	var counts sync.Mutex
	for worker := range 4 {
		workers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				req := request("n", worker*1_000_000+n, false)
				g, err := locks.Acquire(ctx, req)
				counts.Lock()
				if err != nil && !errors.Is(err, store.ErrHeld) {
					if certain(err) {
						t.Errorf("Acquire: got %v", err)
					}
					unknown++
				}
				counts.Unlock()
				if err == nil && g.Held {
					if !inside.TryLock() {
						t.Error("two holders at once")
					} else {
						counts.Lock()
						grants++
						counts.Unlock()
						inside.Unlock()
					}
				}
				ref := refOf(req)
				ref.Bury = true
				for err := locks.Release(context.Background(), ref); err != nil && !errors.Is(err, store.ErrLost); {
					err = locks.Release(context.Background(), ref)
				}
			}
		})
	}
	c := connect(t, s.URLOf("postgres"))
	for ctx.Err() == nil {
		c.Exec(context.Background(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND random() < 0.3", s.database())
		time.Sleep(20 * time.Millisecond)
	}
	workers.Wait()
	if unknown == 0 || grants == 0 {
		t.Errorf("%d grants and %d unknown outcomes: nothing was shown", grants, unknown)
	}
}

// TestFault111_ServerErrors: which of the three outcomes each SQLSTATE is.
func TestFault111_ServerErrors(t *testing.T) {
	t.Parallel()
	s := start(t)
	locks := open(t, s.url)
	c := connect(t, s.url)
	if _, err := c.Exec(t.Context(), `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION 'planted' USING ERRCODE = current_setting('dlock.code'); END $$;
		CREATE TRIGGER fail BEFORE INSERT OR UPDATE OR DELETE ON dlock_locks FOR EACH ROW EXECUTE FUNCTION fail()`); err != nil {
		t.Fatal(err)
	}
	for code, refused := range map[string]bool{
		"40001": false, "40P01": false, "55P03": false, "57014": false, "53300": false, "25006": false, "57P01": false, "XX000": false,
		"42501": true, "53100": true, "53200": true, "42P01": true,
	} {
		if _, err := c.Exec(t.Context(), fmt.Sprintf("ALTER DATABASE %s SET dlock.code = '%s'", s.database(), code)); err != nil {
			t.Fatal(err)
		}
		fresh := open(t, s.url) // whose connections have the setting
		for kind, bury := range map[string]bool{"lone": false, "transaction": true} {
			req := request(kind, 1, false)
			var err error
			if bury {
				ref := refOf(req)
				ref.Bury = true
				err = fresh.Release(t.Context(), ref)
			} else {
				_, err = fresh.Acquire(t.Context(), req)
			}
			if err == nil || certain(err) != refused || errors.Is(err, store.ErrRefused) != refused || !strings.Contains(err.Error(), code) {
				t.Errorf("%s, %s: got %v, want refused %v", code, kind, err, refused)
			}
		}
		undone := refused || code == "40001" || code == "40P01"
		_, errs := fresh.TakeTogether(t.Context(), request("a", 2, false), request("b", 3, false))
		for _, err := range errs {
			if err == nil || certain(err) || errors.Is(err, postgres.ErrNotDone) != undone {
				t.Errorf("%s, together: got %v, want not done %v", code, err, undone)
			}
		}
	}
	if _, err := c.Exec(t.Context(), "DROP TRIGGER fail ON dlock_locks"); err != nil {
		t.Fatal(err)
	}
	hold(t, locks, request("n", 1, false))
}

// TestFault111_RolledBackForAnother: a transaction that the server rolls back in
// favour of another one is run again.
func TestFault111_RolledBackForAnother(t *testing.T) {
	t.Parallel()
	s := start(t)
	locks := open(t, s.url)
	c := connect(t, s.url)
	if _, err := c.Exec(t.Context(), `CREATE SEQUENCE failures;
		CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF nextval('failures') <= 2 THEN RAISE EXCEPTION 'planted' USING ERRCODE = '40001'; END IF; RETURN NEW; END $$;
		CREATE TRIGGER fail BEFORE INSERT ON dlock_locks FOR EACH ROW EXECUTE FUNCTION fail()`); err != nil {
		t.Fatal(err)
	}
	req := request("n", 1, false)
	ref := refOf(req)
	ref.Bury = true
	if err := locks.Release(t.Context(), ref); !errors.Is(err, store.ErrLost) {
		t.Errorf("bury: got %v, want ErrLost after two repetitions", err)
	}
	if _, err := locks.Acquire(t.Context(), req); !errors.Is(err, store.ErrLost) {
		t.Errorf("Acquire of the buried id: got %v, want ErrLost", err)
	}
}

// TestFault111_Timeouts: a lock_timeout or statement_timeout of the server's and a
// lack of connections are unknown outcomes.
func TestFault111_Timeouts(t *testing.T) {
	t.Parallel()
	s := start(t)
	blocker := connect(t, s.url)
	tx, err := blocker.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "LOCK TABLE dlock_locks IN SHARE MODE")
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"lock_timeout", "statement_timeout"} {
		locks := open(t, s.url+"&"+setting+"=100")
		if _, err := locks.Acquire(t.Context(), request("n", 1, false)); err == nil || certain(err) {
			t.Errorf("%s: got %v, want an unknown outcome", setting, err)
		}
	}
	tx.Rollback(t.Context())
	locks := open(t, s.url+"&poll=true&pool_max_conns=2")
	hold(t, locks, request("n", 1, false))
	s.Exec("CREATE ROLE app LOGIN CONNECTION LIMIT 0; GRANT ALL ON SCHEMA public TO app")
	if _, err := postgres.Open(t.Context(), strings.Replace(s.url, "dlock@", "app@", 1)); err == nil || certain(err) {
		t.Errorf("too many connections: got %v, want an error that matches no sentinel", err)
	}
}

// TestFault112_Pooler: behind a pooler in transaction mode the store works, polls,
// and Check says so. With an address to listen at it does not poll.
func TestFault112_Pooler(t *testing.T) {
	t.Parallel()
	s := start(t)
	url := s.StartPooler(t, s.database()) + "&default_query_exec_mode=exec"
	pooled, peer := open(t, url), open(t, url)
	if !pooled.Polls() {
		t.Error("LISTEN behind a pooler counts as working")
	}
	if found := topics(pooled.Check(t.Context())); !strings.Contains(found, "wake-ups") {
		t.Errorf("Check: got %q, want a warning of wake-ups", found)
	}
	for i := range 20 {
		name := fmt.Sprintf("n%d", i)
		events := hear(peer)
		holder, waiter := request(name, 2*i, false), request(name, 2*i+1, true)
		g := hold(t, pooled, holder)
		queue(t, peer, waiter)
		release(t, pooled, holder)
		wantEvent(t, events, "the waiter is granted", func(e store.Event) bool { return e.ID == waiter.ID && e.Token > g.Token })
	}
	listen := connect(t, s.url).Config()
	locks, err := postgres.New(newPool(t, url), &postgres.Options{Listen: listen})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	if locks.Polls() {
		t.Error("with an address to listen at it polls")
	}
}

// topics are the topics of warnings.
func topics(found []postgres.Warning) string {
	var list []string
	for _, w := range found {
		list = append(list, w.Topic)
	}
	return strings.Join(list, " ")
}

// TestListenerReconnects: after a break every waiter is told to ask, and messages
// arrive again.
func TestListenerReconnects(t *testing.T) {
	t.Parallel()
	s := start(t)
	locks, peer := open(t, s.url), open(t, s.url)
	events := hear(peer)
	holder, waiter := request("n", 1, false), request("n", 2, true)
	hold(t, locks, holder)
	queue(t, peer, waiter)
	s.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'dlock listener'")
	wantEvent(t, events, "after the break", func(e store.Event) bool { return e == store.Event{} })
	release(t, locks, holder)
	wantEvent(t, events, "the waiter is granted", func(e store.Event) bool { return e.ID == waiter.ID })
}
