package leases

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A pushed grant is renewed when a third of its WaitTTL has passed, so a short critical section
// makes no renewal. A longer one is renewed in time.
func TestPushedGrantIsRenewedAfterAThirdOfItsWaitTTL(t *testing.T) {
	for name, section := range map[string]time.Duration{"short": 100 * time.Millisecond, "long": coretest.WaitTTL} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := coretest.NewSpy(memory.New())
				first := coretest.MustLock(t, t.Context(), coretest.Open(t, s.Store.(*memory.Store).Peer(), nil).Mutex("m"))
				m := coretest.Open(t, s, nil).Mutex("m")
				locked := make(chan struct{})
				go func() { m.Lock(); close(locked) }()
				synctest.Wait()
				require.NoError(t, first.Unlock())
				<-locked
				time.Sleep(section)
				synctest.Wait()
				m.Unlock()
				if name == "short" {
					assert.Zero(t, s.Renews.Load(), "renewed at once")
				} else {
					assert.EqualValues(t, 1, s.Renews.Load())
				}
			})
		})
	}
}
