package dlock

import (
	"testing"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// One wake-up may stand for two reasons. Who takes it and goes leaves the one that
// was not looked at to who asks next.
func TestResume(t *testing.T) {
	c, err := New(memory.New(), nil)
	require.NoError(t, err)
	defer c.Close()
	for what, tc := range map[string]struct {
		wake func(*attempt)
		want int
	}{
		"served only":      {(*attempt).nudge, 0},
		"granted":          {func(a *attempt) { a.push(store.Event{Token: 1}) }, 1},
		"store came again": {(*attempt).hint, 1},
		"looked at": {func(a *attempt) {
			a.push(store.Event{Token: 1})
			a.byEvent()
		}, 0},
	} {
		a := c.newAttempt(c.Mutex("m").d.terms, store.Exclusive, true)
		tc.wake(a)
		<-a.wake
		a.resume()
		assert.Len(t, a.wake, tc.want, what)
	}
}
