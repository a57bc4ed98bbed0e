package dlock_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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

// formats returns x in all ways in which programs print values.
func formats(t *testing.T, x any) map[string]string {
	t.Helper()
	texts := map[string]string{"Sprint": fmt.Sprint(x), "Errorf": fmt.Errorf("x: %w", fmt.Errorf("%v", x)).Error()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		texts[verb] = fmt.Sprintf(verb, x)
	}
	text, err := json.Marshal(x)
	require.NoError(t, err)
	texts["JSON"] = string(text)
	return texts
}

// No way to print an owner shows its capability. Only String returns that.
func TestPrintingAnOwnerShowsNoCapability(t *testing.T) {
	o := dlock.NewOwner()
	for _, x := range []any{o, &o, []dlock.Owner{o}, struct{ Owner dlock.Owner }{o}, map[string]dlock.Owner{"o": o}} {
		for how, text := range formats(t, x) {
			assert.NotContains(t, strings.ToLower(text), o.String()[:8], "%s of %T", how, x)
		}
	}
	c := coretest.Open(t, memory.New(), nil)
	id, err := hex.DecodeString(o.String())
	require.NoError(t, err)
	inDecimal := strings.Trim(fmt.Sprint(id[:4]), "[]")
	inGo := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", id[:4]), "[]byte{"), "}")
	for _, x := range []any{
		dlock.WithOwner(context.Background(), o), c.Mutex("m").As(o), c.RWMutex("m").As(o), struct{ owner dlock.Owner }{o},
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			text := strings.ToLower(fmt.Sprintf(verb, x))
			for _, secret := range []string{o.String()[:8], inDecimal, inGo} {
				assert.NotContains(t, text, secret, "%s of %T, which fmt looks into", verb, x)
			}
		}
	}
	assert.Contains(t, fmt.Sprintf("%v", o), o.String()[:6], "the first six characters may be shown")
	parsed, err := dlock.ParseOwner(o.String())
	require.NoError(t, err)
	assert.Equal(t, o, parsed)
}

// A Hold prints its name and token, and neither pointers nor its owner's capability.
func TestHoldPrintsReadably(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := coretest.Open(t, memory.New(), nil), dlock.NewOwner()
		m := c.Mutex("sku/eggs")
		for range 4710 { // so that the token is a number that nothing else contains
			require.NoError(t, coretest.MustLock(t, t.Context(), m).Unlock())
		}
		h := coretest.MustLock(t, dlock.WithOwner(t.Context(), o), m)
		texts := formats(t, h)
		for _, how := range []string{"%v", "%+v", "%s", "Sprint", "Errorf", "JSON"} {
			assert.Contains(t, texts[how], "sku/eggs", how)
			assert.Contains(t, texts[how], fmt.Sprint(h.Token()), how)
			assert.NotContains(t, texts[how], "0x", how)
		}
		for how, text := range texts {
			assert.NotContains(t, strings.ToLower(text), o.String()[:8], how)
		}
		require.NoError(t, h.Unlock())
	})
}

// A store.State prints durations with their units, and modes by name.
func TestStatePrintsReadably(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		time.Sleep(time.Second)
		state := coretest.Inspect(t, s, "m")
		for how, text := range map[string]string{
			"%v": fmt.Sprintf("%v", state), "%+v": fmt.Sprintf("%+v", state), "entry": fmt.Sprintf("%v", state.Holders[0]),
		} {
			assert.Contains(t, text, "29s", how)
			assert.Contains(t, text, store.Exclusive.String(), how)
			assert.NotContains(t, text, "0x", how)
		}
		text, err := json.Marshal(state)
		require.NoError(t, err)
		assert.Contains(t, string(text), `"29s"`)
		assert.Contains(t, string(text), `"exclusive"`)
		require.NoError(t, h.Unlock())
	})
}

// The error of Do for a function that failed under a lost lock is one line, and says each thing once.
func TestDoReportsALossInOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := coretest.Open(t, memory.New(), nil).Mutex("m", dlock.WithMaxHold(time.Second))
		failed := errors.New("the work failed")
		err := m.Do(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("%w: %w", failed, context.Cause(ctx))
		})
		require.ErrorIs(t, err, failed)
		coretest.WantError(t, err, "do", "m", dlock.ErrLost)
		text := err.Error()
		assert.NotContains(t, text, "\n")
		for _, once := range []string{"the work failed", "lost", `"m"`} {
			assert.Equal(t, 1, strings.Count(text, once), "%q in %q", once, text)
		}
	})
}
