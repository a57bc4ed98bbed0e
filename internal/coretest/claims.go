package coretest

import (
	"slices"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/stretchr/testify/require"
)

// Claim is the time for which a holder believes to have a lock.
type Claim struct {
	Name        string
	Token       uint64
	From, Until time.Time // Until is zero while the claim lasts
}

// Claim records that h holds exclusively from now until its Done closes.
func (w *World) Claim(h *dlock.Hold) {
	k := &Claim{Name: h.Name(), Token: h.Token(), From: time.Now()}
	w.mu.Lock()
	w.claims = append(w.claims, k)
	w.mu.Unlock()
	done := h.Done()
	go func() {
		<-done // at the latest when the client is closed
		w.mu.Lock()
		defer w.mu.Unlock()
		k.Until = time.Now()
	}()
}

// exclusive asserts that each claim on a name ended before the next one began, and that their
// tokens grow.
func (w *World) exclusive() {
	w.T.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	before := make(map[string]*Claim)
	slices.SortStableFunc(w.claims, func(a, b *Claim) int { return a.From.Compare(b.From) })
	for _, k := range w.claims {
		require.False(w.T, k.Until.IsZero(), "claim on %q has not ended", k.Name)
		if b := before[k.Name]; b != nil {
			require.Greater(w.T, k.Token, b.Token, "token of %q", k.Name)
			if !w.StoreLostData {
				require.False(w.T, k.From.Before(b.Until), "claims on %q overlap: until %v, from %v",
					k.Name, w.After(b.Until), w.After(k.From))
			}
		}
		before[k.Name] = k
	}
}

// Lock takes an exclusive lock that has to be free, and records the claim.
func (w *World) Lock(c *dlock.Client, name string, opts ...dlock.LockOption) *dlock.Hold {
	w.T.Helper()
	h, err := c.Mutex(name, opts...).TryLockContext(w.T.Context())
	require.NoError(w.T, err)
	w.Claim(h)
	return h
}

// BeginLock starts an exclusive LockContext, and records the claim when it is granted.
func (w *World) BeginLock(c *dlock.Client, name string, opts ...dlock.LockOption) *Call {
	return w.Begin(func() (*dlock.Hold, error) {
		h, err := c.Mutex(name, opts...).LockContext(w.T.Context())
		if err == nil {
			w.Claim(h)
		}
		return h, err
	})
}

// Ended waits until h ends. It returns the moment and the reason.
func (w *World) Ended(h *dlock.Hold) (time.Time, error) {
	w.T.Helper()
	w.Await(h.Done())
	at := time.Now()
	synctest.Wait()
	return at, h.Err()
}

// Unlock unlocks h, which has to succeed.
func (w *World) Unlock(h *dlock.Hold) {
	w.T.Helper()
	require.NoError(w.T, h.Unlock())
}

// UnlockLost unlocks a lost hold, so that its owner may lock again.
func (w *World) UnlockLost(h *dlock.Hold) {
	w.T.Helper()
	require.ErrorIs(w.T, h.Unlock(), dlock.ErrLost)
}
