package leases

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// On the real clock, 10,000 goroutines keep every processor busy. That may cost a hold, but no
// holder may believe in a hold that a rival has.
func TestFault59RenewalStarved(t *testing.T) {
	const lease = 100 * time.Millisecond
	s := memory.New()
	c, err := dlock.New(s, &dlock.Options{TTL: lease})
	require.NoError(t, err)
	peer, err := dlock.New(s.Peer(), &dlock.Options{TTL: lease})
	require.NoError(t, err)

	var stop atomic.Bool
	var spinning sync.WaitGroup
	for range 10_000 {
		spinning.Go(func() {
			for !stop.Load() {
				runtime.Gosched()
			}
		})
	}
	grants, end := 0, time.Now().Add(time.Second)
	for time.Now().Before(end) {
		h, err := c.Mutex("m").TryLockContext(t.Context())
		if err != nil {
			continue
		}
		var last time.Time // when h was last seen to be held
		for time.Now().Before(end) {
			if now := time.Now(); h.Err() == nil {
				last = now // before the clock was read for Err
			}
			rival, err := peer.Mutex("m").TryLockContext(t.Context())
			if err != nil {
				continue
			}
			grants++
			assert.Error(t, h.Err(), "two holders at once")
			assert.True(t, last.Before(time.Now()))
			assert.Greater(t, rival.Token(), h.Token())
			_ = rival.Unlock()
			break
		}
		_ = h.Unlock()
	}
	stop.Store(true)
	spinning.Wait()
	require.Eventually(t, func() bool { return c.Stats().Releases+peer.Stats().Releases == 0 }, 10*time.Second, time.Millisecond)
	require.NoError(t, c.Close())
	require.NoError(t, peer.Close())
	t.Logf("%d times the hold was lost and went to the rival", grants)
}

// Other work takes half of the processors' time, and no hold is lost. The lease is long enough for
// a busy machine. It is short enough to end during the test if it were not renewed.
func TestFault59NoFalseLossAtModestLoad(t *testing.T) {
	var lost coretest.Losses
	c, err := dlock.New(memory.New(), &dlock.Options{TTL: 4 * time.Second, OnLost: lost.Add})
	require.NoError(t, err)
	var stop atomic.Bool
	var busy sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		busy.Go(func() {
			pause := time.NewTicker(2 * time.Millisecond)
			defer pause.Stop()
			for !stop.Load() {
				for start := time.Now(); time.Since(start) < time.Millisecond; {
				}
				<-pause.C
			}
		})
	}
	var holds []*dlock.Hold
	for i := range 100 {
		holds = append(holds, coretest.MustLock(t, t.Context(), c.Mutex(fmt.Sprint(i))))
	}
	for end := time.After(4500 * time.Millisecond); ; {
		select {
		case <-holds[len(holds)-1].Done():
			require.Fail(t, "a hold was lost")
		case <-end:
			for _, h := range holds {
				assert.NoError(t, h.Unlock())
			}
			assert.Empty(t, lost.All())
			stop.Store(true)
			busy.Wait()
			require.NoError(t, c.Close())
			return
		}
	}
}
