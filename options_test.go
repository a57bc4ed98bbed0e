package dlock_test

import (
	"context"
	"fmt"
	"math"
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

// strict is a store whose shortest lease is a minute, and lenient is one that keeps any lease.
type (
	strict  struct{ *memory.Store }
	lenient struct{ *memory.Store }
)

func (strict) MinTTL() time.Duration { return time.Minute }

func (lenient) MinTTL() time.Duration { return 1 }

func TestNewRefusesANilStore(t *testing.T) {
	for _, s := range []store.Store{nil, (*memory.Store)(nil), (*coretest.Spy)(nil)} {
		c, err := dlock.New(s, nil)
		assert.Nil(t, c)
		coretest.WantError(t, err, "new", "", dlock.ErrInvalidOption)
	}
}

func TestNewRefusesBadOptions(t *testing.T) {
	const never = 400 * 24 * time.Hour
	for _, tc := range []struct {
		store store.Store
		opts  dlock.Options
		cause error
	}{
		{nil, dlock.Options{TTL: -1}, dlock.ErrInvalidTTL},
		{nil, dlock.Options{TTL: 1}, dlock.ErrInvalidTTL},
		{nil, dlock.Options{TTL: 10*time.Millisecond - 1}, dlock.ErrInvalidTTL},
		{nil, dlock.Options{TTL: never}, dlock.ErrInvalidTTL},
		{nil, dlock.Options{TTL: math.MinInt64}, dlock.ErrInvalidTTL},
		{nil, dlock.Options{TTL: math.MaxInt64}, dlock.ErrInvalidTTL},
		{nil, dlock.Options{TTL: dlock.MaxTTL + 1}, dlock.ErrInvalidTTL},
		{nil, dlock.Options{WaitTTL: -time.Second}, dlock.ErrInvalidTTL},
		{nil, dlock.Options{WaitTTL: time.Millisecond}, dlock.ErrInvalidTTL},
		{nil, dlock.Options{WaitTTL: never}, dlock.ErrInvalidTTL},
		{strict{memory.New()}, dlock.Options{TTL: 59 * time.Second}, dlock.ErrInvalidTTL},
		{strict{memory.New()}, dlock.Options{WaitTTL: 59 * time.Second}, dlock.ErrInvalidTTL},
		{lenient{memory.New()}, dlock.Options{TTL: 10*time.Millisecond - 1}, dlock.ErrInvalidTTL},
		{nil, dlock.Options{StoreTimeout: -1}, dlock.ErrInvalidTTL},
		{nil, dlock.Options{StoreTimeout: dlock.MaxTTL + 1}, dlock.ErrInvalidTTL},
		{nil, dlock.Options{MaxHold: -1}, dlock.ErrInvalidTTL},
		{nil, dlock.Options{MaxWaiters: -1}, dlock.ErrInvalidOption},
		{nil, dlock.Options{LocalHandoffs: 1001}, dlock.ErrInvalidOption},
		{nil, dlock.Options{Label: strings.Repeat("x", 129)}, dlock.ErrInvalidOption},
	} {
		s := tc.store
		if s == nil {
			s = memory.New()
		}
		c, err := dlock.New(s, &tc.opts)
		assert.Nil(t, c)
		coretest.WantError(t, err, "new", "", tc.cause)
	}
}

func TestNewAcceptsTheExtremes(t *testing.T) {
	for _, opts := range []*dlock.Options{
		nil, {}, {TTL: 10 * time.Millisecond}, {TTL: dlock.MaxTTL}, {WaitTTL: 10 * time.Millisecond},
		{TTL: 10 * time.Millisecond, WaitTTL: dlock.MaxTTL}, {MaxHold: math.MaxInt64}, {MaxHold: 1},
		{MaxWaiters: math.MaxInt}, {LocalHandoffs: math.MinInt}, {LocalHandoffs: 1000}, {Label: strings.Repeat("x", 128)},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := coretest.Open(t, memory.New(), opts)
			m := c.Mutex("m")
			if opts == nil || opts.MaxHold != 1 {
				m.Lock()
				m.Unlock()
			}
		})
	}
}

func TestNewMakesNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		s.GoDown()
		c := coretest.Open(t, s, nil)
		c.Mutex("m")
		c.RWMutex("").As(dlock.NewOwner())
		synctest.Wait()
		assert.Zero(t, s.Calls())
		s.Recover()
	})
}

// Requests follow the client's options and the lock's own options.
func TestOptionsReachTheStore(t *testing.T) {
	const second = time.Second
	for _, tc := range []struct {
		name         string
		store        store.Store
		opts         dlock.Options
		lock         []dlock.LockOption
		ttl, waitTTL time.Duration
		timeout      time.Duration
		fixed        bool
	}{
		{name: "defaults", ttl: 30 * second, waitTTL: 5 * second, timeout: 3 * second},
		{name: "short", opts: dlock.Options{TTL: 3 * second}, ttl: 3 * second, waitTTL: 3 * second, timeout: second},
		{name: "all", opts: dlock.Options{TTL: 20 * second, WaitTTL: 7 * second, StoreTimeout: 9 * second}, ttl: 20 * second, waitTTL: 7 * second, timeout: 9 * second},
		{name: "lock's own", lock: []dlock.LockOption{dlock.WithTTL(6 * second)}, ttl: 6 * second, waitTTL: 5 * second, timeout: 2 * second},
		{name: "fixed", lock: []dlock.LockOption{dlock.WithoutRenewal()}, ttl: 30 * second, waitTTL: 5 * second, timeout: 3 * second, fixed: true},
		{name: "strict store", store: strict{memory.New()}, ttl: time.Minute, waitTTL: time.Minute, timeout: 3 * second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tc.store == nil {
					tc.store = memory.New()
				}
				s := coretest.NewSpy(tc.store)
				var asked []store.Request
				s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
					deadline, ok := ctx.Deadline()
					assert.True(t, ok)
					assert.Equal(t, tc.timeout, time.Until(deadline))
					_, carries := dlock.OwnerFrom(ctx)
					assert.False(t, carries, "the caller's context carries no owner")
					asked = append(asked, req)
					return s.Store.Acquire(ctx, req)
				})
				c := coretest.Open(t, s, &tc.opts)
				name := "a name of " + tc.name
				require.NoError(t, coretest.MustLock(t, t.Context(), c.Mutex(name, tc.lock...)).Unlock())
				h, err := c.RWMutex(name, tc.lock...).TryRLockContext(t.Context())
				require.NoError(t, err)
				require.NoError(t, h.Unlock())
				require.Len(t, asked, 2)
				for i, req := range asked {
					assert.Equal(t, name, req.Name)
					assert.Equal(t, tc.ttl, req.TTL)
					assert.Equal(t, tc.waitTTL, req.WaitTTL)
					assert.Equal(t, tc.fixed, req.Fixed)
					assert.Equal(t, i == 0, req.Queue)
					assert.Equal(t, 1, req.Tokens)
					assert.Equal(t, []store.Mode{store.Exclusive, store.Shared}[i], req.Mode)
					assert.Regexp(t, "^[0-9a-f]{32}$", req.ID)
					assert.Regexp(t, "^[!-~]{1,64}$", req.Owner)
				}
			})
		})
	}
}

func TestLabelNamesTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		for label, want := range map[string]string{"me": "^me$", "": `^.+/\d+$`} {
			m := coretest.Open(t, s.Peer(), &dlock.Options{Label: label}).Mutex("m")
			m.Lock()
			assert.Regexp(t, want, coretest.Inspect(t, s, "m").Holders[0].Label)
			m.Unlock()
		}
	})
}

func TestErrorText(t *testing.T) {
	for _, tc := range []struct {
		err  *dlock.Error
		want string
	}{
		{&dlock.Error{Op: "lock", Name: "sku/1", Err: dlock.ErrHeld}, `dlock: lock "sku/1": ` + dlock.ErrHeld.Error()},
		{&dlock.Error{Op: "new", Err: dlock.ErrInvalidOption}, "dlock: new: " + dlock.ErrInvalidOption.Error()},
		{&dlock.Error{Op: "lock", Name: "\x00\n\xff", Err: dlock.ErrLost}, `dlock: lock "\x00\n\xff": ` + dlock.ErrLost.Error()},
		{
			&dlock.Error{Op: "lock", Name: strings.Repeat("x", 65), Err: dlock.ErrLost},
			fmt.Sprintf(`dlock: lock "%s"... (65 bytes): %v`, strings.Repeat("x", 64), dlock.ErrLost),
		},
	} {
		assert.EqualError(t, tc.err, tc.want)
		assert.Equal(t, tc.err.Err, tc.err.Unwrap())
	}
}

// A nil LockOption is an error of the calls that use the lock.
func TestNilLockOptionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		var m *dlock.Mutex
		var rw *dlock.RWMutex
		require.NotPanics(t, func() { m, rw = c.Mutex("m", nil), c.RWMutex("m", dlock.WithTTL(coretest.TTL), nil) })
		_, err := m.LockContext(t.Context())
		coretest.WantError(t, err, "lock", "m", dlock.ErrInvalidOption)
		_, err = rw.TryRLockContext(t.Context())
		coretest.WantError(t, err, "tryrlock", "m", dlock.ErrInvalidOption)
		coretest.WantPanic(t, m.Lock, "lock", dlock.ErrInvalidOption)
		coretest.WantPanic(t, func() { m.TryLock() }, "trylock", dlock.ErrInvalidOption)
		assert.Zero(t, s.Calls())
	})
}

// NoLocalHandoffs turns local hand-over and the sharing of readers off.
func TestNoLocalHandoffs(t *testing.T) {
	assert.EqualValues(t, -1, dlock.NoLocalHandoffs)
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		rw := coretest.Open(t, s, &dlock.Options{LocalHandoffs: dlock.NoLocalHandoffs}).RWMutex("m")
		first, second := coretest.MustRLock(t, t.Context(), rw), coretest.MustRLock(t, t.Context(), rw)
		assert.Len(t, coretest.Inspect(t, s, "m").Holders, 2)
		require.NoError(t, first.Unlock())
		require.NoError(t, second.Unlock())
	})
}
