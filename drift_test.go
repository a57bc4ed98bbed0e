package dlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hasty is a store whose clock runs fast, by 1 %: what it calls a second is over sooner.
type hasty struct{ store.Store }

func (hasty) toReal(d time.Duration) time.Duration { return d * 100 / 101 }

func (s hasty) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	promised := req.TTL
	req.TTL, req.WaitTTL = s.toReal(req.TTL), s.toReal(req.WaitTTL)
	g, err := s.Store.Acquire(ctx, req)
	if g.Held {
		g.TTL = promised // by its own clock
	}
	return g, err
}

func (s hasty) Renew(ctx context.Context, refs []store.Ref) []error {
	for i := range refs {
		refs[i].TTL = s.toReal(refs[i].TTL)
	}
	return s.Store.Renew(ctx, refs)
}

// Fault 64: clocks that run apart by 1 % are what the margin is for. Cut off
// from such a store, the holder is told before a rival is granted.
func TestFault64StoreClockFastByOnePercent(t *testing.T) {
	for _, lease := range []time.Duration{10 * time.Millisecond, time.Second, 30 * time.Second, 10 * time.Minute} {
		for name, promoted := range map[string]bool{"granted": false, "promoted": true} {
			t.Run(lease.String()+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := memory.New()
					cut := newSpy(hasty{s.Peer()})
					c := open(t, cut, &dlock.Options{TTL: lease, WaitTTL: lease})
					rival := open(t, s.Peer(), nil)
					if promoted {
						first := mustLock(t, t.Context(), rival.Mutex("m"))
						time.AfterFunc(time.Millisecond, func() { _ = first.Unlock() })
					}
					h := mustLock(t, t.Context(), c.Mutex("m"))
					if !promoted {
						time.Sleep(10 * lease) // renewals work
						require.NoError(t, h.Err())
					}
					cut.goDown()
					told := make(chan time.Time, 1)
					go func() { <-h.Done(); told <- time.Now() }()
					next := mustLock(t, t.Context(), rival.Mutex("m"))
					granted := time.Now()
					select {
					case at := <-told:
						assert.True(t, at.Before(granted), "told %v, rival granted %v", at, granted)
					default:
						assert.Fail(t, "the holder was not told before")
					}
					require.NoError(t, next.Unlock())
					cut.recover()
					time.Sleep(time.Second) // for what could not be released meanwhile
					assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
				})
			})
		}
	}
}
