package etcd

import (
	"context"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// Inspect implements [store.Store]. It takes one round trip and one more for each lease that it finds, and two
// more for each waiter whose hold was due and is made now. The deadlines it shows are those of the leases.
func (s *Store) Inspect(ctx context.Context, name string) (store.State, error) {
	if err := s.ready(ctx); err != nil {
		return store.State{}, err
	}
	v, err := s.lookSettled(ctx, s.keys.dir(name))
	if err != nil {
		return store.State{}, s.outcome(err)
	}
	left := make(map[clientv3.LeaseID]time.Duration)
	describe := func(entries []*entry) (list []store.Entry, err error) {
		for _, e := range entries {
			if _, ok := left[e.lease]; !ok {
				answer, err := s.client.TimeToLive(ctx, e.lease)
				if err != nil {
					return nil, err
				}
				left[e.lease] = time.Duration(answer.TTL) * time.Second
			}
			if err := e.decode(); err != nil {
				return nil, err
			}
			list = append(list, store.Entry{
				ID: store.Short(e.id), Owner: e.Owner, Mode: e.mode,
				Token: e.token, Remaining: max(0, min(left[e.lease], s.records.left(e.id))), Label: e.Label,
			})
		}
		return list, nil
	}
	state := store.State{Name: name, Token: tokenAt(v.rev) | (maxTokens - 1)}
	if state.Holders, err = describe(v.holds); err != nil {
		return store.State{}, s.outcome(err)
	}
	if state.Queue, err = describe(v.queue); err != nil {
		return store.State{}, s.outcome(err)
	}
	return state, nil
}

// lookSettled reads a name when the holds of all waiters have been made that the model has granted. If the server
// refuses them, for want of space for example, those waiters wait still.
func (s *Store) lookSettled(ctx context.Context, dir string) (v *view, err error) {
	if v, err = s.look(ctx, dir); err == nil {
		_, v, err = s.settle(ctx, v, nil, nil)
	}
	if isRefusal(err) {
		return s.look(ctx, dir)
	}
	return v, err
}

// left is how long an id lasts, as far as the handle knows.
func (rs *records) left(id string) time.Duration {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	switch r := rs.m[id]; {
	case r == nil:
		return math.MaxInt64
	case r.ending:
		return 0
	default:
		return time.Until(r.deadline)
	}
}

// Break implements [store.Breaker]. It takes two round trips.
func (s *Store) Break(ctx context.Context, name string) (broken int, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	dir := s.keys.dir(name)
	if _, err := s.lookSettled(ctx, dir); err != nil {
		return 0, s.outcome(err)
	}
	k := idKeys{dir: dir}
	answer, err := s.client.Delete(ctx, k.from(kindRead), clientv3.WithRange(k.to(kindWrite)))
	if err != nil {
		return 0, s.outcome(err)
	}
	return int(answer.Deleted), nil
}

// List implements [store.Lister]. It reads all keys under the prefix, a thousand at a time.
func (s *Store) List(ctx context.Context) ([]string, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	var names []string
	var last string
	from, end := s.keys.prefix+"/", clientv3.GetPrefixRangeEnd(s.keys.prefix+"/")
	for {
		answer, err := s.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(1000), clientv3.WithKeysOnly())
		if err != nil {
			return nil, s.outcome(err)
		}
		for _, kv := range answer.Kvs {
			key := string(kv.Key)
			dir := s.keys.dirOf(key)
			if _, kind, ok := parse(dir, key); !ok || kind == kindRefused || dir == last || dir == "" {
				continue
			}
			last = dir // keys come in order
			if name, err := s.keys.name(dir); err == nil {
				names = append(names, name)
			}
		}
		if !answer.More {
			return names, nil
		}
		from = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
	}
}
