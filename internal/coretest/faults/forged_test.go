package faults

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/require"
)

// Many events that the store did not send: a waiter does not believe them, and their cost is
// bounded.
func TestFault54ForgedEvents(t *testing.T) {
	const flood, over = 100_000, time.Second
	for name, forge := range map[string]func(own string, known uint64) store.Event{
		"unknown id": func(string, uint64) store.Event {
			return store.Event{ID: "0123456789abcdef0123456789abcdef", Token: 1 << 60}
		},
		"own id, no token":   func(own string, _ uint64) store.Event { return store.Event{ID: own} },
		"own id, past token": func(own string, known uint64) store.Event { return store.Event{ID: own, Token: known} },
		"reconnected":        func(string, uint64) store.Event { return store.Event{} },
	} {
		t.Run(name, func(t *testing.T) {
			coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
				h := w.Lock(w.C1, "a")
				q := w.BeginLock(w.C2, "a")
				request := w.S2.Calls(faultstore.Acquire)[0]
				e := forge(request.ID(), request.Result.Grant.Token)
				for range flood / 2 {
					w.S2.Emit(e)
				}
				for range flood / 2 {
					w.S2.Emit(e)
					time.Sleep(over / (flood / 2))
				}
				synctest.Wait()
				q.StillWaits()
				require.NoError(t, h.Err())
				requests := w.S2.Count(faultstore.Acquire)
				if name == "unknown id" {
					require.Equal(t, 1, requests)
				}
				require.LessOrEqual(t, requests, int(over/askGap)+2)
				require.Less(t, w.S1.Count(faultstore.Any), 3)

				w.Unlock(h)
				next, at := q.Granted()
				require.Equal(t, over, w.After(at))
				w.Unlock(next)
			})
		})
	}
}

// Ten thousand calls wait in one process. The store sees one request at a time, and the number of
// store calls a hand-over stays the same.
func TestFault55TenThousandWaiters(t *testing.T) {
	const waiters = 10_000
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		h := w.Lock(w.C2, "a")
		done := make(chan struct{}, waiters)
		for range waiters {
			go func() {
				h, err := w.C1.Mutex("a").LockContext(t.Context())
				if err == nil {
					err = h.Unlock()
				}
				if err != nil {
					t.Error(err)
				}
				done <- struct{}{}
			}()
		}
		synctest.Wait()
		require.Equal(t, 1, w.S1.Count(faultstore.Any))
		require.Len(t, w.Inspect("a").Queue, 1)

		w.SleepUntil(time.Second)
		before := w.S1.Count(faultstore.Any)
		w.Unlock(h)
		for range waiters {
			w.Await(done)
		}
		require.Zero(t, time.Since(w.Start)-time.Second, "a waiter was not woken")
		require.Less(t, float64(w.S1.Count(faultstore.Any)-before)/waiters, 3.1, "store calls a hand-over")
	})
}
