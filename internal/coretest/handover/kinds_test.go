package handover

import (
	"context"
	"strings"
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

// Two waiters with different TTLs need two places at the store. Both waiters give up while this
// process holds. When Unlock returns, neither place is left, even if the release of one is slow.
func TestUnlockGivesUpPlacesOfDifferentTTLs(t *testing.T) {
	for slow := range 2 {
		synctest.Test(t, func(t *testing.T) {
			s := coretest.NewSpy(memory.New())
			c := coretest.Open(t, s, nil)
			h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
			for i, m := range []*dlock.Mutex{c.Mutex("m"), c.Mutex("m", dlock.WithTTL(ttl+time.Second))} {
				ctx, cancel := context.WithCancel(t.Context())
				failed := make(chan error, 1)
				go func() {
					_, err := m.LockContext(ctx)
					failed <- err
				}()
				synctest.Wait()
				assert.Len(t, coretest.Inspect(t, s, "m").Queue, i+1, "places while this process holds")
				cancel()
				assert.ErrorIs(t, <-failed, context.Canceled)
			}
			place := coretest.Inspect(t, s, "m").Queue[slow].ID // its beginning
			s.OnRelease(func(ctx context.Context, ref store.Ref) error {
				if strings.HasPrefix(ref.ID, place) {
					time.Sleep(2 * time.Millisecond)
				}
				return s.Store.Release(ctx, ref)
			})
			require.NoError(t, h.Unlock())
			coretest.WantFree(t, s, "m")
			synctest.Wait()
			assert.Zero(t, coretest.Gauges(c))
		})
	}
}
