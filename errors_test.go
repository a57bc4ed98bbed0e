package dlock_test

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

// Each message says what is wrong and what to do.
func TestErrorsHelp(t *testing.T) {
	for what, tc := range map[string]struct {
		is   error
		says []string
		do   func(t *testing.T, s *memory.Store, c *dlock.Client) error
	}{
		"closed client": {dlock.ErrClosed, []string{`lock "m"`, "the client is closed"}, func(t *testing.T, _ *memory.Store, c *dlock.Client) error {
			require.NoError(t, c.Close())
			_, err := c.Mutex("m").LockContext(t.Context())
			return err
		}},
		"closed client, inspect": {dlock.ErrClosed, []string{`inspect "m"`, "the client is closed"}, func(t *testing.T, _ *memory.Store, c *dlock.Client) error {
			require.NoError(t, c.Close())
			_, err := c.Inspect(t.Context(), "m")
			return err
		}},
		"closed store": {dlock.ErrClosed, []string{`lock "m"`, "the store is closed", "close the client first"}, func(t *testing.T, s *memory.Store, c *dlock.Client) error {
			require.NoError(t, s.Close())
			_, err := c.Mutex("m").LockContext(t.Context())
			return err
		}},
		"closed store, list": {dlock.ErrClosed, []string{"list", "the store is closed", "close the client first"}, func(t *testing.T, s *memory.Store, c *dlock.Client) error {
			require.NoError(t, s.Close())
			_, err := c.List(t.Context())
			return err
		}},
		"closed store, unlock": {dlock.ErrClosed, []string{`unlock "m"`, "the store is closed", "close the client first"}, func(t *testing.T, s *memory.Store, c *dlock.Client) error {
			h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
			require.NoError(t, s.Close())
			return h.Unlock()
		}},
		"store closed before the client": {dlock.ErrUnavailable, []string{"close", "the store is closed", "close the client first", "1 releases", "left to their leases"},
			func(t *testing.T, s *memory.Store, c *dlock.Client) error {
				coretest.MustLock(t, t.Context(), c.Mutex("m"))
				require.NoError(t, s.Close())
				start := time.Now()
				defer func() { assert.Less(t, time.Since(start), time.Second) }()
				err := c.Close()
				assert.NotContains(t, err.Error(), "within", "it did not wait")
				return err
			}},
		"unlock twice": {dlock.ErrNotHeld, []string{`unlock "m"`, "not held", "this Hold was unlocked before"}, func(t *testing.T, _ *memory.Store, c *dlock.Client) error {
			h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
			require.NoError(t, h.Unlock())
			return h.Unlock()
		}},
		"unlock after close": {dlock.ErrNotHeld, []string{`unlock "m"`, "Client.Close has released it", "the client is closed"}, func(t *testing.T, _ *memory.Store, c *dlock.Client) error {
			h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
			require.NoError(t, c.Close())
			return h.Unlock()
		}},
		"nested lock without the owner": {context.DeadlineExceeded, []string{`lock "m"`, "this client holds it", "context of Do or Hold.Context", "held by web-3"},
			func(t *testing.T, _ *memory.Store, c *dlock.Client) error {
				return c.Mutex("m").Do(t.Context(), func(context.Context) error {
					_, err := c.Mutex("m").LockContext(within(t, time.Second))
					return err
				})
			}},
		"text of a private owner": {dlock.ErrInvalidOwner, []string{"private owner", "only in its own process", "WithOwner with NewOwner"}, func(t *testing.T, _ *memory.Store, c *dlock.Client) error {
			h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
			_, err := dlock.ParseOwner(h.Owner().String())
			require.NoError(t, h.Unlock())
			return err
		}},
		"no name": {dlock.ErrInvalidName, []string{"0 bytes", "1 to 1024"}, func(t *testing.T, _ *memory.Store, c *dlock.Client) error {
			_, err := c.Mutex("").LockContext(t.Context())
			return err
		}},
		"short lease": {dlock.ErrInvalidTTL, []string{"TTL 1ms", "not between 10ms"}, func(t *testing.T, s *memory.Store, _ *dlock.Client) error {
			_, err := dlock.New(s, &dlock.Options{TTL: time.Millisecond})
			return err
		}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memory.New()
				c, err := dlock.New(s, &dlock.Options{Label: "web-3"})
				require.NoError(t, err)
				err = tc.do(t, s, c)
				require.ErrorIs(t, err, tc.is)
				for _, text := range tc.says {
					assert.ErrorContains(t, err, text)
				}
				assert.NotContains(t, err.Error(), "\n")
				_ = c.Close() // of a closed store it says so
			})
		})
	}
}

// A call that the store has refused did not fail because of the holder, so its error names none. That is also
// so if the context has ended before the answer came.
func TestErrorOfARefusalNamesNoHolder(t *testing.T) {
	for name, deadline := range map[string]time.Duration{"in time": time.Minute, "after the deadline": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := coretest.NewSpy(memory.New())
				m := coretest.Open(t, s, &dlock.Options{Label: "web-3"}).Mutex("m")
				h := coretest.MustLock(t, t.Context(), m)
				s.OnAcquire(func(context.Context, store.Request) (store.Grant, error) {
					time.Sleep(2 * time.Second)
					return store.Grant{}, store.ErrRefused
				})
				_, err := m.LockContext(dlock.WithOwner(within(t, deadline), dlock.NewOwner()))
				coretest.WantError(t, err, "lock", "m", dlock.ErrRefused)
				assert.Empty(t, heldBy(t, err))
				assert.EqualError(t, err, `dlock: lock "m": `+store.ErrRefused.Error())
				require.NoError(t, h.Unlock())
			})
		})
	}
}
