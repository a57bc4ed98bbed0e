package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// read returns all there is of a name, with nothing left to promote.
func (s *Store) read(ctx context.Context, name string) (*view, error) {
	dir := s.keys.dir(name)
	answer, err := s.client.Get(ctx, dir, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	v, err := parseView(dir, answer.Header.Revision, answer.Kvs)
	if err != nil {
		return nil, err
	}
	return s.settled(ctx, dir, v)
}

// settled settles until nothing is left to promote.
func (s *Store) settled(ctx context.Context, dir string, v *view) (*view, error) {
	for {
		next, err := s.settle(ctx, dir, v)
		if err != nil || next == v {
			return next, err
		}
		v = next
	}
}

// Inspect implements [store.Store]. It takes one round trip and one more for
// each lease that it finds. The deadlines it shows are those of the leases.
func (s *Store) Inspect(ctx context.Context, name string) (store.State, error) {
	if err := s.ready(ctx); err != nil {
		return store.State{}, err
	}
	v, err := s.read(ctx, name)
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
			remaining := left[e.lease]
			if c := s.claims.find(e.id); c != nil {
				remaining = min(remaining, s.claims.left(c))
			}
			list = append(list, store.Entry{
				ID: store.Short(e.id), Owner: store.Short(e.owner), Mode: e.mode,
				Token: e.token, Remaining: remaining, Label: e.label,
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

func (cs *claims) left(c *claim) time.Duration {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return time.Until(c.deadline)
}

// Break implements [store.Breaker]. It takes one round trip to read and one for
// every 100 holds.
func (s *Store) Break(ctx context.Context, name string) (broken int, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	v, err := s.read(ctx, name)
	if err != nil {
		return 0, s.outcome(err)
	}
	for most := 100; len(v.holds) > 0; { // a transaction has up to 128 operations
		n := min(len(v.holds), most)
		var ops []clientv3.Op
		for _, h := range v.holds[:n] {
			ops = append(ops, clientv3.OpDelete(h.key))
		}
		answer, err := s.client.Txn(ctx).Then(ops...).Commit()
		if errors.Is(err, rpctypes.ErrTooManyOps) && n > 1 { // the server's limit is lower than usual
			most = n / 2
			continue
		}
		if err != nil {
			return broken, s.outcome(err)
		}
		for _, r := range answer.Responses {
			broken += int(r.GetResponseDeleteRange().Deleted)
		}
		v.holds = v.holds[n:]
	}
	return broken, nil
}

// List implements [store.Lister]. It reads all keys under the prefix, a thousand
// at a time.
func (s *Store) List(ctx context.Context) ([]string, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	var names []string
	from, end := s.keys.prefix+"/", clientv3.GetPrefixRangeEnd(s.keys.prefix+"/")
	for {
		answer, err := s.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(1000), clientv3.WithKeysOnly())
		if err != nil {
			return nil, s.outcome(err)
		}
		for _, kv := range answer.Kvs {
			key := string(kv.Key)
			name, ok := s.keys.name(key)
			if !ok || key[len(key)-1] == '!' {
				continue
			}
			if len(names) == 0 || names[len(names)-1] != name { // keys come in order
				names = append(names, name)
			}
		}
		if !answer.More {
			return names, nil
		}
		from = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
	}
}
