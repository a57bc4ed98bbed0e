package watchdog

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNewRefusesBadConfig(t *testing.T) {
	renew, expired := renewAll, func(*Lease) {}
	for name, cfg := range map[string]Config{
		"no Renew":          {Expired: expired},
		"no Expired":        {Renew: renew},
		"negative Timeout":  {Renew: renew, Expired: expired, Timeout: -1},
		"negative MaxBatch": {Renew: renew, Expired: expired, MaxBatch: -1},
	} {
		w, err := New(cfg)
		require.ErrorIs(t, err, ErrConfig, name)
		require.Nil(t, w, name)
	}
}

func TestZeroLease(t *testing.T) {
	var l Lease
	require.False(t, l.Valid())
	require.False(t, l.Disarm())
	require.True(t, l.Deadline().IsZero())
	require.Zero(t, l.Cause())
}

func TestLeaseOfAnotherWatchdogPanics(t *testing.T) {
	a, b := newFixture(t, Config{}, nil), newFixture(t, Config{}, nil)
	defer a.w.Close()
	defer b.w.Close()
	var l Lease
	a.w.Keep(&l, Terms{Deadline: time.Now().Add(time.Hour)})
	require.Panics(t, func() { b.w.Keep(&l, Terms{Deadline: time.Now().Add(time.Hour)}) })
}

func TestDisarmBeforeDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		var l Lease
		deadline := time.Now().Add(time.Second)
		r.w.Keep(&l, Terms{Deadline: deadline})
		require.True(t, l.Valid())
		require.True(t, l.Deadline().Equal(deadline))
		pass(time.Second - 1)
		require.True(t, l.Valid())
		require.True(t, l.Disarm())
		require.False(t, l.Valid())
		require.True(t, l.Deadline().IsZero())
		require.False(t, l.Disarm())
		pass(time.Minute)
		require.Empty(t, r.lost())
		require.Zero(t, l.Cause())
	})
}

// In this bubble the timer and the caller run at the same moment, the deadline.
// The lease is lost at that moment, and the loss is reported once.
func TestCallAtDeadline(t *testing.T) {
	for name, method := range map[string]func(*Lease) bool{
		"Valid": (*Lease).Valid, "Disarm": (*Lease).Disarm,
		"Cause": func(l *Lease) bool { return l.Cause() != DeadlinePassed },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, Config{}, nil)
				defer r.w.Close()
				var l Lease
				deadline := time.Now().Add(time.Second)
				r.w.Keep(&l, Terms{Deadline: deadline})
				time.Sleep(time.Second)
				require.False(t, l.Valid())
				require.False(t, method(&l))
				synctest.Wait()
				require.Equal(t, []lossSeen{{&l, DeadlinePassed, deadline}}, r.lost())
				require.False(t, method(&l))
				require.Len(t, r.lost(), 1)
			})
		})
	}
}

func TestDeadlineInThePastIsLostAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		var l Lease
		r.w.Keep(&l, Terms{Deadline: time.Now().Add(-time.Hour), Validity: time.Second})
		require.False(t, l.Valid())
		synctest.Wait()
		require.Equal(t, []lossSeen{{&l, DeadlinePassed, time.Now()}}, r.lost())
		require.Zero(t, r.callCount())
	})
}

func TestKeepAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		var l Lease
		r.keep(&l, time.Second)
		require.True(t, l.Disarm())
		r.keep(&l, 2*time.Second) // after End
		pass(10 * time.Second)
		require.True(t, l.Valid())
		require.Empty(t, r.lost())

		deadline := time.Now().Add(3 * time.Second)
		r.w.Keep(&l, Terms{Deadline: deadline}) // of an armed lease: new terms
		n := len(r.renewals(&l))
		pass(3 * time.Second)
		require.Len(t, r.renewals(&l), n, "the new terms have no renewal")
		require.Equal(t, []lossSeen{{&l, DeadlinePassed, deadline}}, r.lost())

		r.keep(&l, time.Second) // after a loss
		pass(10 * time.Second)
		require.True(t, l.Disarm())
		require.Len(t, r.lost(), 1)

		// An earlier deadline than the one replaced.
		r.w.Keep(&l, Terms{Deadline: time.Now().Add(time.Hour)})
		deadline = time.Now().Add(time.Second)
		r.w.Keep(&l, Terms{Deadline: deadline})
		pass(time.Minute)
		require.Equal(t, lossSeen{&l, DeadlinePassed, deadline}, r.lost()[1])
	})
}

func TestExpiredMayUseTheWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *Watchdog
		var l Lease
		reported := 0
		w, err := New(Config{Renew: renewAll, Expired: func(x *Lease) {
			reported++
			require.False(t, x.Valid() || x.Disarm())
			if reported < 3 {
				w.Keep(x, Terms{Deadline: time.Now().Add(time.Second)})
			}
		}})
		require.NoError(t, err)
		defer w.Close()
		w.Keep(&l, Terms{Deadline: time.Now().Add(time.Second)})
		pass(time.Minute)
		require.Equal(t, 3, reported)
	})
}

// A call of Renew is under way when its lease is disarmed, or armed again. Its
// outcome changes nothing.
func TestFault71ResultOfAnEarlierGenerationIsIgnored(t *testing.T) {
	for _, outcome := range []Outcome{Unknown, Renewed, Lost} {
		for _, rearm := range []string{"no", "soon due", "later due", "in place"} {
			t.Run(fmt.Sprint(outcome, " ", rearm), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { earlierGeneration(t, outcome, rearm) })
			})
		}
	}
}

func earlierGeneration(t *testing.T, outcome Outcome, rearm string) {
	r := newFixture(t, Config{}, nil)
	defer r.w.Close()
	free := r.holdReplies(outcome)
	defer free()
	var l Lease
	r.keep(&l, 8*time.Second)
	pass(3 * time.Second)
	require.Equal(t, 1, r.callCount())

	// Less than the validity, so that the deadline shows a renewal by the
	// earlier call.
	terms := Terms{Deadline: time.Now().Add(5 * time.Second), Validity: 6 * time.Second}
	if rearm == "soon due" {
		// The renewal becomes due while the earlier call has the lease.
		terms.Deadline = time.Now().Add(2400 * time.Millisecond)
	}
	if rearm != "in place" {
		require.True(t, l.Disarm())
	}
	if rearm != "no" {
		r.w.Keep(&l, terms)
	}
	pass(time.Second)
	require.Equal(t, 1, r.callCount(), "two calls at once for one lease")
	r.setReply(silent)
	free()
	synctest.Wait()
	require.Empty(t, r.lost())
	if rearm == "no" {
		require.False(t, l.Valid())
		pass(time.Minute)
		require.Equal(t, 1, r.callCount())
		require.Empty(t, r.lost())
		return
	}
	require.True(t, l.Deadline().Equal(terms.Deadline), "moved to %v", l.Deadline())
	if rearm == "soon due" {
		require.Equal(t, 2, r.callCount(), "not sent as soon as the earlier call ended")
	}
	pass(time.Until(terms.Deadline))
	require.Equal(t, []lossSeen{{&l, DeadlinePassed, terms.Deadline}}, r.lost())
}
