package leases

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// A store answers a renewal with fewer results than holds: the others were not renewed. Results beyond the
// holds say nothing.
func TestRenewalWithAWrongNumberOfResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		m := coretest.Open(t, s, nil).Mutex("m")
		s.OnRenew(func(context.Context, []store.Ref) []error { return nil })
		start := time.Now()
		h := coretest.MustLock(t, t.Context(), m)
		<-h.Done()
		assert.Equal(t, coretest.Validity(ttl), time.Since(start))
		assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)

		s.OnRenew(func(ctx context.Context, refs []store.Ref) []error {
			return append(s.Store.Renew(ctx, refs), store.ErrLost)
		})
		h = coretest.MustLock(t, t.Context(), m)
		time.Sleep(4 * ttl)
		assert.NoError(t, h.Unlock())
	})
}
