package etcd

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// Sees reports whether this handle's watch of a name is open, and what an id waits for is
// known if it waits here.
func (s *Store) Sees(name, id string) bool {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	n := s.watches.m[s.keys.dir(name)]
	if n == nil || n.told == 0 {
		return false
	}
	w := n.waiting[id]
	return w == nil || !w.busy
}

// Told is the last revision that the watch of a name has told of, 0 if it is not open.
func (s *Store) Told(name string) int64 {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	if n := s.watches.m[s.keys.dir(name)]; n != nil {
		return n.told
	}
	return 0
}

// Records is of how many ids the handle keeps a record.
func (s *Store) Records() int {
	s.records.mu.Lock()
	defer s.records.mu.Unlock()
	return len(s.records.m)
}

// Watches is how many names the handle watches.
func (s *Store) Watches() int {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	return len(s.watches.m)
}

// Grants decides to grant a request as things are, and returns what carries it out
// if its conditions hold.
func (s *Store) Grants(t testing.TB, req store.Request) (carryOut func() (done bool, err error)) {
	t.Helper()
	k := s.keys.keysOf(req.Name, req.Owner, req.ID, req.Mode)
	v, err := s.look(t.Context(), k.dir)
	if err != nil {
		t.Fatal(err)
	}
	e := newEntry(k, req)
	if v.due(e) != e {
		t.Fatal("it would not be granted")
	}
	return func() (bool, error) {
		h, _, err := s.makeHold(t.Context(), v, e)
		return h != nil, err
	}
}

// DirOf is what all keys of a name begin with.
func DirOf(name string) string { return layout{"dlock"}.dir(name) }

// HoldOf is the key of a request that is granted while its owner has no hold, PlaceOf that of one that waits.
func HoldOf(req store.Request) string {
	return layout{"dlock"}.keysOf(req.Name, req.Owner, req.ID, req.Mode).first()
}

func PlaceOf(req store.Request) string {
	return layout{"dlock"}.keysOf(req.Name, req.Owner, req.ID, req.Mode).place()
}

// Occupy makes operations wait as if calls of others were under way, for a patience, until free is called.
func (s *Store) Occupy(patience time.Duration) (free func()) {
	c := &s.together
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls, c.patience = c.calls+maxCalls, patience
	return func() {
		for range maxCalls {
			c.answered()
		}
	}
}

// Waiting is how many operations wait for others' calls.
func (s *Store) Waiting() int {
	s.together.mu.Lock()
	defer s.together.mu.Unlock()
	return len(s.together.waiting)
}

// Age makes the handle take its leases for ones that end in a moment.
func (s *Store) Age() {
	all := s.leases.list()
	s.leases.mu.Lock()
	defer s.leases.mu.Unlock()
	for _, l := range all {
		l.until = time.Now().Add(time.Second)
	}
}

// EndLate ends the record of a hold, whose deletion is on its way until it is carried out, which says whether it
// found the hold as it was.
func (s *Store) EndLate(t testing.TB, req store.Request) (carryOut func() bool) {
	t.Helper()
	key := HoldOf(req)
	answer, err := s.client.Get(t.Context(), key)
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatal(answer, err)
	}
	s.records.mu.Lock()
	r := s.records.m[req.ID]
	r.ending, r.deadline = true, time.Time{}
	s.records.mu.Unlock()
	return func() bool {
		unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", answer.Kvs[0].ModRevision)
		answer, err := s.client.Txn(t.Context()).If(unchanged).Then(clientv3.OpDelete(key)).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return answer.Succeeded
	}
}

// EndOrdered orders the end of the record of an id, and returns what carries it out.
func (s *Store) EndOrdered(id string) (carryOut func() error) {
	r, _ := s.records.find(id)
	s.records.mu.Lock()
	r.ending = true
	s.records.mu.Unlock()
	return func() error { return s.records.end(s.ctx, r) }
}

// Expire has the time of an id be up.
func (s *Store) Expire(id string) {
	s.records.mu.Lock()
	defer s.records.mu.Unlock()
	s.records.endAt(s.records.m[id], time.Now())
}

// HangClose makes the Close of the client hang, as it does when a watch is refused at that moment.
func (s *Store) HangClose(t testing.TB) {
	s.client.Watcher = hanging{s.client.Watcher, t.Context()}
}

type hanging struct {
	clientv3.Watcher
	ctx context.Context
}

func (h hanging) Close() error {
	<-h.ctx.Done()
	return h.Watcher.Close()
}
