package leases

import (
	"context"
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

// hasty is a store whose clock runs 1 % fast: its second is over sooner.
type hasty struct{ store.Store }

func (hasty) toReal(d time.Duration) time.Duration { return d * 100 / 101 }

func (s hasty) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	promised := req.TTL
	req.TTL, req.WaitTTL = s.toReal(req.TTL), s.toReal(req.WaitTTL)
	g, err := s.Store.Acquire(ctx, req)
	if g.Held {
		g.TTL = promised // by its own fast clock
	}
	return g, err
}

func (s hasty) Renew(ctx context.Context, refs []store.Ref) []error {
	for i := range refs {
		refs[i].TTL = s.toReal(refs[i].TTL)
	}
	return s.Store.Renew(ctx, refs)
}

// The margin is for clocks that differ by 1 %. Cut off from such a store, the holder learns of the
// loss before a rival is granted.
func TestFault64StoreClockFastByOnePercent(t *testing.T) {
	for _, lease := range []time.Duration{10 * time.Millisecond, time.Second, 30 * time.Second, 10 * time.Minute} {
		for name, promoted := range map[string]bool{"granted": false, "promoted": true} {
			t.Run(lease.String()+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := memory.New()
					cut := coretest.NewSpy(hasty{s.Peer()})
					c := coretest.Open(t, cut, &dlock.Options{TTL: lease, WaitTTL: lease})
					rival := coretest.Open(t, s.Peer(), nil)
					if promoted {
						first := coretest.MustLock(t, t.Context(), rival.Mutex("m"))
						time.AfterFunc(time.Millisecond, func() { _ = first.Unlock() })
					}
					h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
					if !promoted {
						time.Sleep(10 * lease) // renewals work
						require.NoError(t, h.Err())
					}
					cut.GoDown()
					ended := make(chan time.Time, 1)
					go func() { <-h.Done(); ended <- time.Now() }()
					next := coretest.MustLock(t, t.Context(), rival.Mutex("m"))
					granted := time.Now()
					select {
					case at := <-ended:
						assert.True(t, at.Before(granted), "ended %v, rival granted %v", at, granted)
					default:
						assert.Fail(t, "the hold had not ended before")
					}
					require.NoError(t, next.Unlock())
					cut.Recover()
					time.Sleep(time.Second) // for releases that failed meanwhile
					assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
				})
			})
		}
	}
}
