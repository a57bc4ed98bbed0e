package real

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// observer looks at the locks from outside, through a handle of its own that no
// wire disturbs. It sees what no worker can tell of: a hold that nobody knows.
type observer struct {
	on   store.Store
	stop context.CancelFunc
	done sync.WaitGroup
}

const (
	lookEvery = 50 * time.Millisecond
	lookFor   = time.Second
)

// observe looks at each name again and again until close.
func observe(on store.Store, names []string, add func(record)) *observer {
	ctx, stop := context.WithCancel(context.Background())
	o := &observer{on: on, stop: stop}
	o.done.Go(func() {
		for tick := time.NewTicker(lookEvery); ctx.Err() == nil; {
			for _, name := range names {
				look(ctx, on, name, add)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
			}
		}
	})
	return o
}

// look records what is there of one name. That servers do not answer is no news.
func look(ctx context.Context, on store.Store, name string, add func(record)) {
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	call := now()
	state, err := on.Inspect(ctx, name)
	if err != nil {
		return
	}
	at := now()
	for _, e := range state.Holders {
		add(seen(call, at, name, e, held))
	}
	for _, e := range state.Queue {
		add(seen(call, at, name, e, queued))
	}
}

func seen(call, at moment, name string, e store.Entry, what string) record {
	return record{Op: opSeen, Call: call, Return: at, Name: name, ID: e.ID, Owner: e.Owner,
		Shared: e.Mode == store.Shared, Token: e.Token, TTL: e.Remaining, Outcome: what}
}

func (o *observer) close() {
	o.stop()
	o.done.Wait()
	o.on.Close()
}
