package postgrestest

import (
	"net"
	"strings"
	"testing"
)

// StartReplica starts an asynchronous replica of the server. The server needs no
// further configuration.
func (s *Server) StartReplica(t testing.TB) *Server {
	t.Helper()
	r := &Server{t: t, as: s.as, dir: folder(t, s.as)}
	host, from, _ := net.SplitHostPort(s.Addr)
	r.run("pg_basebackup", "--pgdata="+r.data(), "--host="+host, "--port="+from, "--username=dlock", "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	t.Cleanup(func() { r.Stop() })
	r.launchAnywhere("postgresql.auto.conf")
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
