package etcd

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// Where many goroutines of a process want one lock, a turn is two transactions,
// one after the other: the release, and upon it the grant. They become one in two
// ways, of which each knows what the other cannot.
//
//   - A release grants what follows from it, if requests of this handle are next
//     (succession).
//   - A request that is sent while a release of this handle is on its way takes
//     the hold's place, if nothing else is there (departure).

// succession is what follows when the only hold of a name, an exclusive one, is
// released.
type succession struct {
	at         knowledge
	hold       *entry
	conditions []clientv3.Cmp
	next       []promotion
}

// succession returns what follows a release as far as this handle knows; nil if
// it does not, or if that is for another handle to see to.
func (rs *rooms) succession(dir, id string) *succession {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.m[dir]
	if r == nil || r.view == nil || r.busy || r.view.rev < r.behind {
		return nil
	}
	v := r.view
	if len(v.holds) != 1 || v.holds[0].id != id || v.holds[0].mode != store.Exclusive {
		return nil
	}
	all := &succession{at: knowledge{r, r.watched}, hold: v.holds[0], next: (&view{rev: v.rev, queue: v.queue}).promotions()}
	for _, p := range all.next {
		if r.waiting[p.waiter.id] == nil {
			return nil
		}
	}
	if len(all.next) == 0 {
		return nil
	}
	all.conditions = append(unchangedSince(v, all.next), clientv3.Compare(clientv3.CreateRevision(all.hold.key), "=", all.hold.create))
	return all
}

// succeed releases a hold and grants what follows, if all is as it was known to
// be; else it only releases. It reports whether the hold was there.
func (s *Store) succeed(ctx context.Context, dir string, all *succession, release clientv3.Op) (found bool, err error) {
	then := append([]clientv3.Op{clientv3.OpDelete(all.hold.key)}, puts(all.next, 0)...)
	kept := s.keepPlaces(ctx, s.rooms.owners(dir, all.next))
	answer, err := s.client.Txn(ctx).
		If(all.conditions...).
		Then(append(then, clientv3.OpGet(dir, clientv3.WithPrefix()))...).
		Else(release).
		Commit()
	if errors.Is(err, rpctypes.ErrTooManyOps) { // the server's limit is lower than usual
		answer, err := s.client.Do(ctx, release)
		return err == nil && answer.Txn().Succeeded, err
	}
	if err != nil {
		return false, err
	}
	if !answer.Succeeded {
		return answer.Responses[0].GetResponseTxn().Succeeded, nil
	}
	if v, err := viewOf(dir, answer); err == nil {
		s.rooms.granted(ctx, dir, all.at, v, kept)
	}
	return true, nil
}
