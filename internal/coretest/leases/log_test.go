package leases

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wantHolds checks the number of holds that a record names.
func wantHolds(t *testing.T, r coretest.Record, want int64) {
	t.Helper()
	holds, ok := r.Attrs["holds"]
	if assert.True(t, ok, "%q has no number of holds", r.Message) {
		assert.Equal(t, want, holds.Int64(), "holds in %q", r.Message)
	}
}

// Of many holds two cannot be renewed for a while, each for its own reason. The log has one record
// for the start and one for the end of each trouble.
func TestRenewalTroubleIsLoggedOnceACause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := &coretest.Logs{}
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{TTL: 10 * ttl, Logger: slog.New(logs)})
		var failing atomic.Bool
		failing.Store(true)
		causes := map[string]error{"1": errors.New("moved"), "2": errors.New("too slow")}
		s.OnRenew(func(ctx context.Context, refs []store.Ref) []error {
			errs := s.Store.Renew(ctx, refs)
			for i, ref := range refs {
				if failing.Load() && causes[ref.Name] != nil {
					errs[i] = causes[ref.Name]
				}
			}
			return errs
		})
		var holds []*dlock.Hold
		for i := range 1_000 {
			time.Sleep(10 * time.Millisecond) // so that renewals travel in several batches
			holds = append(holds, coretest.MustLock(t, t.Context(), c.Mutex(fmt.Sprint(i))))
		}
		time.Sleep(8 * ttl)
		synctest.Wait()
		started := logs.Of(slog.LevelWarn, "renew")
		require.Len(t, started, 2, "one record for the start of each trouble")
		for _, r := range started {
			wantHolds(t, r, 1)
		}
		assert.Empty(t, logs.Of(slog.LevelInfo, "renew"), "the trouble goes on")
		failing.Store(false)
		time.Sleep(8 * ttl)
		synctest.Wait()
		ended := logs.Of(slog.LevelInfo, "renew")
		assert.Len(t, ended, 2, "one record for the end of each trouble")
		for _, r := range ended {
			wantHolds(t, r, 1)
		}
		assert.Len(t, logs.Of(slog.LevelWarn, "renew"), 2)
		for _, h := range holds {
			require.NoError(t, h.Unlock())
		}
	})
}

// Lock waits through an outage, and on a store that refuses requests. It logs that at once and then
// at growing intervals.
func TestLockLogsAnOutageAtGrowingIntervals(t *testing.T) {
	for name, answer := range map[string]error{"down": coretest.ErrDown, "full": store.ErrRefused} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logs := &coretest.Logs{}
				s := coretest.NewSpy(memory.New())
				m := coretest.Open(t, s, &dlock.Options{Logger: slog.New(logs)}).Mutex("m")
				s.OnAcquire(func(context.Context, store.Request) (store.Grant, error) { return store.Grant{}, answer })
				locked := make(chan struct{})
				go func() { m.Lock(); close(locked) }()
				time.Sleep(4 * time.Hour)
				records := logs.Of(slog.LevelWarn, "lock")
				s.Recover()
				<-locked
				m.Unlock()
				require.GreaterOrEqual(t, len(records), 3, "the outage is not logged")
				require.LessOrEqual(t, len(records), 30, "the outage is logged again and again")
				first := records[1].At.Sub(records[0].At)
				last := records[len(records)-1].At.Sub(records[len(records)-2].At)
				assert.GreaterOrEqual(t, last, 4*first, "the intervals do not grow")
			})
		})
	}
}

// The log of a loss says which hold of which lock was lost. Of the id it shows the beginning.
func TestLogOfALossNamesTheHold(t *testing.T) {
	for name, find := range map[string]func(*testing.T, *dlock.Hold){
		"renewal": func(_ *testing.T, h *dlock.Hold) { <-h.Done() },
		"unlock":  func(t *testing.T, h *dlock.Hold) { require.ErrorIs(t, h.Unlock(), dlock.ErrLost) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, logs := memory.New(), new(coretest.Logs)
				c := coretest.Open(t, s, &dlock.Options{Logger: slog.New(logs)})
				h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
				id := coretest.Inspect(t, s, "m").Holders[0].ID
				_, err := c.Break(t.Context(), "m")
				require.NoError(t, err)
				find(t, h)
				synctest.Wait()
				records := logs.Of(slog.LevelWarn, "hold")
				require.Len(t, records, 1)
				for attr, want := range map[string]any{"name": "m", "token": h.Token(), "id": id} {
					assert.Equal(t, want, records[0].Attrs[attr].Any(), attr)
				}
				_ = h.Unlock()
			})
		})
	}
}

// troubles takes so many locks, whose renewals fail for a while, each with the error of fail. It returns what
// the log tells of the start and of the end.
func troubles(t *testing.T, holds int, fail func(store.Ref) error) (started, ended []coretest.Record) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		logs := new(coretest.Logs)
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{Logger: slog.New(logs)})
		s.OnRenew(func(_ context.Context, refs []store.Ref) []error {
			errs := make([]error, len(refs))
			for i, ref := range refs {
				errs[i] = fail(ref)
			}
			return errs
		})
		list := make([]*dlock.Hold, holds)
		for i := range list {
			list[i] = coretest.MustLock(t, t.Context(), c.Mutex(fmt.Sprint(i)))
		}
		time.Sleep(ttl / 2)
		synctest.Wait()
		started = logs.Of(slog.LevelWarn, "renew")
		assert.Empty(t, logs.Of(slog.LevelInfo, "renew"), "the trouble goes on")
		s.Recover()
		time.Sleep(ttl / 2)
		synctest.Wait()
		ended = logs.Of(slog.LevelInfo, "renew")
		assert.Len(t, logs.Of(slog.LevelWarn, "renew"), len(started))
		for _, h := range list {
			require.NoError(t, h.Unlock())
		}
	})
	return started, ended
}

// The renewals of ten holds fail for one reason. The log tells of its start once. It tells of its end
// once, when none of them fails any more.
func TestRenewalTroubleOfSeveralHoldsIsOne(t *testing.T) {
	started, ended := troubles(t, 10, func(store.Ref) error { return coretest.ErrDown })
	assert.Len(t, started, 1)
	require.Len(t, ended, 1)
	wantHolds(t, ended[0], 10)
}

// The renewals of 40 holds fail, each with a text of its own. The log tells sixteen of them apart, and has the
// others as several causes.
func TestRenewalTroublesOfManyCauses(t *testing.T) {
	started, ended := troubles(t, 40, func(ref store.Ref) error { return errors.New("request " + ref.Name + " failed") })
	for _, records := range [][]coretest.Record{started, ended} {
		several := 0
		for _, r := range records {
			if r.Attrs["error"].String() == "several causes" {
				several++
			}
		}
		assert.Equal(t, 1, several)
		assert.Len(t, records, 1+16)
	}
}

// A hold is unlocked while its renewals fail. The log tells that the trouble has ended, and tells of the
// trouble of the next hold.
func TestRenewalTroubleEndsWithTheUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := new(coretest.Logs)
		s := coretest.NewSpy(memory.New())
		m := coretest.Open(t, s, &dlock.Options{Logger: slog.New(logs)}).Mutex("m")
		s.FailRenewals("m")
		for before := range 2 {
			h := coretest.MustLock(t, t.Context(), m)
			time.Sleep(ttl / 2)
			synctest.Wait()
			assert.Len(t, logs.Of(slog.LevelWarn, "renew"), before+1)
			assert.Len(t, logs.Of(slog.LevelInfo, "renew"), before)
			require.NoError(t, h.Unlock())
			synctest.Wait()
			assert.Len(t, logs.Of(slog.LevelInfo, "renew"), before+1)
		}
	})
}
