package redis_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// TestPushedHandOver: a lock goes from one process to another in the time of one
// script call and one push, measured on the same connections a moment before and
// after. The script call is the release of a lock for which somebody waits.
//
// It does not run beside other tests, which it would measure too.
func TestPushedHandOver(t *testing.T) {
	const rounds = 400
	most := 1.2
	if underRace {
		most = 1.6 // the detector slows the client down, not the server
	}
	s := newSite(t)
	from, to := newPeer(t, s.server), newPeer(t, s.server)
	// The push of the yardstick comes over the connection that the events come by.
	const channel = "dlock:{yard}:stick"
	pushed := make(chan time.Time, 1)
	go to.raw.Receive(t.Context(), to.raw.B().Ssubscribe().Channel(channel).Build(), func(rueidis.PubSubMessage) {
		pushed <- time.Now()
	})
	poll(t, "the yardstick is subscribed to", patience, func() bool { return len(channels(s.server)) == 1 })
	var call, push, release, handOver []time.Duration
	for round := range rounds {
		held, waiting := request("yard", 2*round+1), request("yard", 2*round+2)
		for i, r := range []store.Request{held, waiting} {
			if _, err := []*redis.Store{from.store, to.store}[i].Acquire(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := from.store.Release(t.Context(), refTo(held)); err != nil {
			t.Fatal(err)
		}
		called := time.Now()
		if err := from.raw.Do(t.Context(), from.raw.B().Spublish().Channel(channel).Message("x").Build()).Error(); err != nil {
			t.Fatal(err)
		}
		arrived := <-pushed
		if err := to.store.Release(t.Context(), refTo(waiting)); err != nil {
			t.Fatal(err)
		}

		h := lock(t, from.client, "a")
		waits := begin(t, to.client, "a")
		s.queued("a", 1)
		released := time.Now()
		unlock(t, h)
		unlocked := time.Now()
		next, granted := waits.granted(soon)
		unlock(t, next)
		if round >= rounds/10 { // the first warm up
			call = append(call, called.Sub(began))
			push = append(push, arrived.Sub(called))
			release = append(release, unlocked.Sub(released))
			handOver = append(handOver, granted.Sub(released))
		}
	}
	a, b, c := median(call), median(push), median(handOver)
	ratio := float64(c) / float64(a+b)
	t.Logf("p50: script call %v, push %v; Unlock %v, hand-over %v: %.2f of call and push", a, b, median(release), c, ratio)
	if ratio > most {
		t.Errorf("a hand-over takes %.2f of a script call and a push, want at most %.1f", ratio, most)
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// peer is a client with a connection of its own, which a test may use too.
type peer struct {
	raw    rueidis.Client
	store  *redis.Store
	client *dlock.Client
}

func newPeer(t *testing.T, server *redistest.Server) peer {
	t.Helper()
	raw, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr}, ForceSingleClient: true, DisableCache: true,
		AlwaysPipelining: true, PipelineMultiplex: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(raw.Close)
	store := newStore(t, raw)
	return peer{raw, store, newClient(t, store, dlock.Options{})}
}

// Two hundred wait in one process for a lock that stays held. Together they ask
// less than once a second.
func TestWaitingCostsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	holder, c := s.near(dlock.Options{}), s.near(dlock.Options{})
	h := s.lock(holder, "a")
	done := make(chan error, 1)
	go func() { done <- storm(c, "a", 200) }()
	s.queued("a", 1)
	poll(t, "it listens", patience, func() bool { return len(channels(s.server)) == 1 })
	const seconds = 5
	before := s.cost()
	<-time.After(seconds * time.Second)
	n := s.cost() - before
	t.Logf("%d script calls in %d s", n, seconds)
	if n > seconds {
		t.Errorf("%d script calls in %d s, want at most one a second", n, seconds)
	}
	unlock(t, h)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
