package watchdog

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCloseWaitsAndIsIdempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{}, nil)
		defer r.w.Close()
		ended := false
		r.setReply(func(ctx context.Context, batch []*Lease) []Outcome {
			<-ctx.Done()
			time.Sleep(50 * time.Millisecond)
			ended = true
			return always(Lost)(ctx, batch)
		})
		var inCall, slotted, fixed, recent Lease
		r.keep(&inCall, 30*time.Second)
		pass(10 * time.Second)
		require.Equal(t, 1, r.callCount())
		r.keep(&slotted, 30*time.Second)
		r.w.Keep(&fixed, Terms{Deadline: time.Now().Add(30 * time.Second)})
		pass(time.Second)
		r.keep(&recent, 30*time.Second)
		start := time.Now()
		r.w.Close()
		require.True(t, ended, "Close returned before the call of Renew")
		require.Equal(t, 50*time.Millisecond, time.Since(start))
		r.w.Close()
		require.Empty(t, r.lost(), "the result came after Close")
		require.True(t, inCall.Valid() && slotted.Valid() && fixed.Valid() && recent.Valid())
		require.True(t, inCall.Disarm())
		pass(time.Minute)
		require.Empty(t, r.lost())
		require.Equal(t, 1, r.callCount())
	})
}

func TestCloseWaitsForExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reported := false
		w, err := New(Config{Renew: renewAll, Expired: func(*Lease) {
			time.Sleep(time.Second)
			reported = true
		}})
		require.NoError(t, err)
		var l Lease
		w.Keep(&l, Terms{Deadline: time.Now()})
		time.Sleep(time.Nanosecond)
		w.Close()
		require.True(t, reported)
	})
}

// After Close no timer declares a loss. Valid, Disarm and Cause go on by the
// clock.
func TestDeadlineAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{}, nil)
		var fixed, renewed, settled Lease
		deadline := time.Now().Add(time.Second)
		r.w.Keep(&fixed, Terms{Deadline: deadline})
		r.keep(&settled, 30*time.Second)
		pass(500 * time.Millisecond)
		r.w.Keep(&renewed, Terms{Deadline: time.Now().Add(time.Minute), Validity: time.Minute})
		r.w.Close()
		require.True(t, fixed.Valid() && renewed.Valid() && settled.Valid())
		pass(time.Until(deadline))
		require.False(t, fixed.Valid())
		require.False(t, fixed.Disarm())
		require.Equal(t, DeadlinePassed, fixed.Cause())
		require.True(t, settled.Disarm())
		require.True(t, renewed.Valid())
		pass(time.Hour)
		require.False(t, renewed.Valid() || renewed.Disarm())
		require.Empty(t, r.lost())
		require.Zero(t, r.callCount())
	})
}

func TestKeepAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Config{}, nil)
		r.w.Close()
		var l Lease
		r.keep(&l, time.Second)
		require.True(t, l.Valid())
		require.True(t, l.Disarm())
		r.keep(&l, time.Second)
		pass(time.Second)
		require.False(t, l.Valid())
		require.Zero(t, r.callCount())
		require.Empty(t, r.lost())
	})
}

// Close does not wait for a wheel that hangs.
func TestCloseWithHungWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wheels := &fakeWheels{setup: faults["blocks"]}
		r := newFixture(t, Config{}, wheels.make)
		defer r.w.Close()
		defer wheels.unblock()
		var l Lease
		r.keep(&l, 30*time.Second)
		pass(time.Second)
		start := time.Now()
		r.w.Close()
		require.Zero(t, time.Since(start))
	})
}
