// Package rights runs the conformance suite as users with no more rights than the documents
// name, on etcd and PostgreSQL. The tests of store/redis and store/zookeeper do so there.
package rights

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/postgres"
)

// suite opens handles by a URL, and leaves it to the suite to close them.
func suite(url string) conformance.Suite {
	open := func(t testing.TB) store.Store {
		s, err := stores.Open(url)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return conformance.Suite{
		New:      open,
		Peer:     func(t testing.TB, _ store.Store) store.Store { return open(t) },
		Parallel: 8,
	}
}

// says checks that a document names the rights.
func says(t *testing.T, document, sentence string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + document)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), sentence) {
		t.Errorf("%s does not say %q", document, sentence)
	}
}

func TestPostgres(t *testing.T) {
	says(t, "postgres.md", "needs `SELECT, INSERT, UPDATE, DELETE` on the table and `USAGE` on the sequence")
	server := postgrestest.Start(t)
	url := stores.NewDatabase(t, server)
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	for _, sql := range []string{
		"CREATE ROLE locker LOGIN",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON dlock_locks TO locker", "GRANT USAGE ON SEQUENCE dlock_locks_token TO locker",
	} {
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	url = strings.Replace(url, "dlock@", "locker@", 1)
	migratesAndGuards(t, url)
	conformance.RunSuite(t, suite(url+"&pool_max_conns=4"))
}

// migratesAndGuards: at its start a program runs Migrate as the user of the locks, and its transactions call Guard.
func migratesAndGuards(t *testing.T, url string) {
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if err := postgres.Migrate(t.Context(), c, ""); err != nil {
		t.Error(err)
	}
	locks, err := postgres.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	client, err := dlock.New(locks, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	hold, err := client.Mutex("guarded").LockContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Unlock()
	err = pgx.BeginFunc(t.Context(), c, func(tx pgx.Tx) error { return postgres.Guard(t.Context(), tx, hold) })
	if err != nil {
		t.Error(err)
	}
}

func TestEtcd(t *testing.T) {
	says(t, "etcd.md", "needs read and write rights for the prefix, `dlock/` by default")
	cluster := etcdtest.Start(t, 1, "--bcrypt-cost=4")
	admin := cluster.Client(t)
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for user, role := range map[string]string{"root": "root", "locker": "locks"} {
		do(admin.UserAdd(t.Context(), user, "secret"))
		do(admin.RoleAdd(t.Context(), role))
		do(admin.UserGrantRole(t.Context(), user, role))
	}
	do(admin.RoleGrantPermission(t.Context(), "locks", "dlock/", "dlock0", clientv3.PermissionType(clientv3.PermReadWrite)))
	do(admin.AuthEnable(t.Context()))
	s := suite(strings.Replace(cluster.URL(), "://", "://locker:secret@", 1))
	s.Lag = 3 * time.Second
	conformance.RunSuite(t, s)
}
