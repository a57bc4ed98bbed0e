package redis_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// TestPushedHandOver: a lock goes from one process to another in the time of one
// script call and one push, measured on the same connections a moment before. The
// call is the release of a lock that somebody waits for, without the clients
// around it; one that does nothing is measured as well.
//
// It does not run beside other tests, which it would measure too.
func TestPushedHandOver(t *testing.T) {
	const (
		rounds = 400
		rest   = 2 * time.Millisecond // before either: what comes after a pause is slower
	)
	most, mostOfNothing := 1.2, 1.6
	if underRace || testing.CoverMode() != "" {
		most, mostOfNothing = 1.6, 2.2 // both slow the client down, not the server
	}
	s := newSite(t)
	from, to := newPeer(t, s.server), newPeer(t, s.server)
	// The push of the yardstick comes over the connection that the events come by.
	const channel = "dlock:{yard}:stick"
	pushed := make(chan time.Time, 1)
	go to.raw.Receive(t.Context(), to.raw.B().Ssubscribe().Channel(channel).Build(), func(rueidis.PubSubMessage) {
		pushed <- time.Now()
	})
	locktest.Poll(t, "the yardstick is subscribed to", locktest.Patience, func() bool { return len(channels(s.server)) == 1 })
	sha, err := from.raw.Do(t.Context(), from.raw.B().ScriptLoad().Script("return 1").Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	var call, push, release, unlocking, handOver []time.Duration
	for round := range rounds {
		time.Sleep(rest)
		began := time.Now()
		if err := from.raw.Do(t.Context(), from.raw.B().Evalsha().Sha1(sha).Numkeys(1).Key("{yard}").Build()).Error(); err != nil {
			t.Fatal(err)
		}
		called := time.Now()
		if err := from.raw.Do(t.Context(), from.raw.B().Spublish().Channel(channel).Message("x").Build()).Error(); err != nil {
			t.Fatal(err)
		}
		arrived := <-pushed

		held, waiting := locktest.Request("yard", 2*round+1), locktest.Request("yard", 2*round+2)
		for i, r := range []store.Request{held, waiting} {
			if _, err := []*redis.Store{from.store, to.store}[i].Acquire(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(rest)
		releasing := time.Now()
		locktest.Release(t, from.store, held)
		answered := time.Now()
		locktest.Release(t, to.store, waiting)

		h := locktest.Lock(t, from.client, "a")
		waits := locktest.Begin(t, to.client, "a")
		s.queued("a", 1)
		time.Sleep(rest)
		released := time.Now()
		locktest.Unlock(t, h)
		unlocked := time.Now()
		next, granted := waits.Granted(locktest.Soon)
		locktest.Unlock(t, next)
		if round >= rounds/10 { // the first warm up
			call = append(call, called.Sub(began))
			push = append(push, arrived.Sub(called))
			release = append(release, answered.Sub(releasing))
			unlocking = append(unlocking, unlocked.Sub(released))
			handOver = append(handOver, granted.Sub(released))
		}
	}
	nothing, way, end := median(call), median(push), median(handOver)
	ratio := float64(end) / float64(median(release)+way)
	ofNothing := float64(end) / float64(nothing+way)
	t.Logf("p50: release %v, a script that does nothing %v, push %v; Unlock %v, hand-over %v: %.2f of release and push, %.2f of nothing and push",
		median(release), nothing, way, median(unlocking), end, ratio, ofNothing)
	if ratio > most || ofNothing > mostOfNothing {
		t.Errorf("a hand-over takes %.2f of a release and a push, want at most %.1f; %.2f with a script that does nothing, want at most %.1f",
			ratio, most, ofNothing, mostOfNothing)
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
	return peer{raw, store, locktest.NewClient(t, store, dlock.Options{})}
}

// Two hundred wait in one process for a lock that stays held. Together they ask
// less than once a second.
func TestWaitingCostsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	holder, c := s.near(dlock.Options{}), s.near(dlock.Options{})
	h := s.lock(holder, "a")
	done := make(chan error, 1)
	go func() { done <- locktest.Storm(c, "a", 200) }()
	s.queued("a", 1)
	locktest.Poll(t, "it listens", locktest.Patience, func() bool { return len(channels(s.server)) == 1 })
	const seconds = 5
	before := s.cost()
	<-time.After(seconds * time.Second)
	n := s.cost() - before
	t.Logf("%d script calls in %d s", n, seconds)
	if n > seconds {
		t.Errorf("%d script calls in %d s, want at most one a second", n, seconds)
	}
	locktest.Unlock(t, h)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
