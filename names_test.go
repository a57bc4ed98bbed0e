package dlock_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Names are 1 to 1,024 arbitrary bytes, and distinct names are distinct locks.
func TestFault85Names(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		good := []string{
			"m", "\x00", "\n", " ", "{", "}", "{}", "a{b}c", "{a}{b}", "\xff\xfe", "é", "e\u0301", "m:q", "m/", "/m", "../m", "*", "M",
			"private:012345", strings.Repeat("x", 1023), strings.Repeat("x", 1024), strings.Repeat("\x00", 1024), strings.Repeat("é", 512),
		}
		var holds []*dlock.Hold
		for _, name := range good {
			h, err := c.Mutex(name).TryLockContext(t.Context())
			require.NoError(t, err, "%q", name)
			assert.Equal(t, name, h.Name())
			assert.Equal(t, name, c.RWMutex(name).Name())
			assert.Len(t, coretest.Inspect(t, s, name).Holders, 1)
			holds = append(holds, h)
		}
		for _, h := range holds {
			require.NoError(t, h.Unlock())
		}
		calls := s.Calls()
		for _, name := range []string{"", strings.Repeat("x", 1025), strings.Repeat("x", 1<<20), strings.Repeat("é", 513)} {
			_, err := c.Mutex(name).LockContext(t.Context())
			coretest.WantError(t, err, "lock", name, dlock.ErrInvalidName)
			assert.Less(t, len(err.Error()), 300, "the error repeats the whole name")
			_, err = c.RWMutex(name).TryRLockContext(t.Context())
			coretest.WantError(t, err, "tryrlock", name, dlock.ErrInvalidName)
		}
		assert.Equal(t, calls, s.Calls())
	})
}
