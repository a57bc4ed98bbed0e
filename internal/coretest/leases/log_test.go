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
