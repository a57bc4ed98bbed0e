package watchdog

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCauseString(t *testing.T) {
	require.Equal(t, "deadline passed", DeadlinePassed.String())
	require.Equal(t, "told lost", ToldLost.String())
	require.Equal(t, "maximum hold time reached", CapReached.String())
	require.Equal(t, "not lost", Cause(0).String())
}

// The cause of a loss by a deadline is CapReached exactly if the deadline is the
// cap, whether Keep or a renewal has set the deadline.
func TestCauseOfADeadline(t *testing.T) {
	const validity = 9 * time.Second
	for name, c := range map[string]struct {
		last, remains time.Duration // 0: no cap
		fails         bool          // renewals have an unknown outcome
		want          Cause
		after         time.Duration
	}{
		"no cap":                  {0, validity, true, DeadlinePassed, validity},
		"cap before the deadline": {4 * time.Second, validity, false, CapReached, 4 * time.Second},
		"cap is the deadline":     {validity, validity, false, CapReached, validity},
		"cap by a renewal":        {20 * time.Second, validity, false, CapReached, 20 * time.Second},
		"failure before the cap":  {20 * time.Second, validity, true, DeadlinePassed, validity},
		"cap in the past":         {-time.Second, validity, false, CapReached, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, Config{}, nil)
				defer r.w.Close()
				if c.fails {
					r.setReply(always(Unknown))
				}
				start := time.Now()
				terms := Terms{Deadline: start.Add(c.remains), Validity: validity}
				if c.last != 0 {
					terms.Last = start.Add(c.last)
				}
				var l Lease
				r.w.Keep(&l, terms)
				if c.after > 0 {
					pass(c.after - 1)
					require.Zero(t, l.Cause())
					time.Sleep(time.Nanosecond)
				}
				require.Equal(t, c.want, l.Cause()) // before or after the loss is reported
				synctest.Wait()
				require.Equal(t, []lossSeen{{&l, c.want, start.Add(c.after)}}, r.lost())
				require.Equal(t, c.want, l.Cause())

				r.keep(&l, validity)
				require.Zero(t, l.Cause(), "the loss of an earlier Keep")
				require.True(t, l.Disarm())
				require.Zero(t, l.Cause(), "disarmed")
			})
		})
	}
}

// The store says that the lease is gone. The deadline passes before the loss is
// reported, because Expired is slow. The cause remains ToldLost.
func TestToldLostStaysTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const validity = 3 * time.Second
		var mu sync.Mutex
		reported := make(map[*Lease]Cause)
		w, err := New(Config{
			Renew: func(ctx context.Context, batch []*Lease) []Outcome { return always(Lost)(ctx, batch) },
			Expired: func(l *Lease) {
				time.Sleep(time.Hour)
				mu.Lock()
				defer mu.Unlock()
				reported[l] = l.Cause()
			},
		})
		require.NoError(t, err)
		defer w.Close()
		leases := make([]Lease, 2*shardCount)
		for i := range leases {
			w.Keep(&leases[i], Terms{Deadline: time.Now().Add(validity), Validity: validity})
		}
		for _, wait := range []time.Duration{validity / 2, validity, 3 * time.Hour} {
			pass(wait)
			for i := range leases {
				require.False(t, leases[i].Valid() || leases[i].Disarm())
				require.Equal(t, ToldLost, leases[i].Cause())
			}
		}
		require.Len(t, reported, len(leases))
		for _, cause := range reported {
			require.Equal(t, ToldLost, cause)
		}
	})
}
