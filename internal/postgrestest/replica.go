package postgrestest

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// StartReplica starts an asynchronous replica of the server. The server needs no
// further configuration.
func (s *Server) StartReplica(t testing.TB) *Server {
	t.Helper()
	r := &Server{t: t, as: s.as, dir: folder(t, s.as), Addr: freeAddr(t)}
	host, from, _ := net.SplitHostPort(s.Addr)
	r.run("pg_basebackup", "--pgdata="+r.data(), "--host="+host, "--port="+from, "--username=dlock", "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	_, port, _ := net.SplitHostPort(r.Addr)
	conf, err := os.OpenFile(filepath.Join(r.data(), "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = conf.WriteString("port=" + port + "\n")
		conf.Close()
	}
	if err != nil {
		t.Fatalf("postgrestest: cannot write the configuration: %v", err)
	}
	t.Cleanup(func() { r.Stop() })
	r.Launch()
	return r
}

// Promote makes a replica a server of its own and waits until it writes.
func (s *Server) Promote() {
	s.t.Helper()
	s.Exec("SELECT pg_promote()")
	await(s.t, "the replica writes", func() bool { return s.try("CREATE TEMP TABLE written ()") == nil })
}

// HasReplayed waits until a replica has all that the server has written so far.
func (s *Server) HasReplayed(replica *Server) {
	s.t.Helper()
	await(s.t, "the replica has replayed all", func() bool {
		return s.try("DO $$ BEGIN ASSERT (SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()) > 0; END $$") == nil
	})
}

// URLOfBoth is the URL of a database that connects to whichever of two servers
// takes writes.
func URLOfBoth(url string, a, b *Server) string {
	url = strings.Replace(url, a.Addr, a.Addr+","+b.Addr, 1)
	return url + "&target_session_attrs=read-write"
}
