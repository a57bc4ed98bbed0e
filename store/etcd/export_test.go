package etcd

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// Sees reports whether the watch of a name has told this handle of an id.
func (s *Store) Sees(name, id string) bool {
	s.rooms.mu.Lock()
	defer s.rooms.mu.Unlock()
	r := s.rooms.m[s.keys.dir(name)]
	return r != nil && r.view != nil && r.view.kvs[s.keys.entry(name, id)] != nil
}

// Claims is of how many ids the handle keeps note, and at how many moments it will
// look at them.
func (s *Store) Claims() (ids, looks int) {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	return len(s.claims.m), len(s.claims.due)
}

// Rooms is how many names the handle watches.
func (s *Store) Rooms() int {
	s.rooms.mu.Lock()
	defer s.rooms.mu.Unlock()
	return len(s.rooms.m)
}

// Grants decides to grant a request as things are, and returns what carries it out
// unless something has changed.
func (s *Store) Grants(t testing.TB, req store.Request) (carryOut func() (done bool, err error)) {
	t.Helper()
	dir := s.keys.dir(req.Name)
	answer, err := s.client.Get(t.Context(), dir, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	v, err := parseView(dir, answer.Header.Revision, answer.Kvs)
	if err != nil {
		t.Fatal(err)
	}
	e := newEntry(s.keys.entry(req.Name, req.ID), req)
	if !v.verdict(e).granted {
		t.Fatal("it would not be granted")
	}
	return func() (bool, error) {
		_, done, err := s.commit(t.Context(), dir, v, []promotion{{waiter: e, token: newToken(0)}}, clientv3.NoLease)
		return done, err
	}
}

// Key is the key of an id under a name.
func Key(name, id string) string { return layout{"dlock"}.entry(name, id) }
