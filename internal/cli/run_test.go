package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
)

func TestOwnerOfANestedRun(t *testing.T) {
	outer, other := dlock.NewOwner(), dlock.NewOwner()
	env := func(variables ...string) func(string) string {
		return func(name string) string {
			for _, v := range variables {
				if value, ok := strings.CutPrefix(v, name+"="); ok {
					return value
				}
			}
			return ""
		}
	}
	owner, err := ownerFor("a", false, env())
	require.NoError(t, err)
	assert.NotEqual(t, outer, owner)
	owner, err = ownerFor("a", false, env("DLOCK_OWNER="+outer.String()))
	require.NoError(t, err)
	assert.Equal(t, outer, owner)
	held := env("DLOCK_OWNER="+other.String(), "DLOCK_HELD=a="+outer.String()+"&b%26="+other.String())
	owner, err = ownerFor("a", false, held)
	require.NoError(t, err)
	assert.Equal(t, outer, owner)
	owner, err = ownerFor("b&", false, held)
	require.NoError(t, err)
	assert.Equal(t, other, owner)
	owner, err = ownerFor("c", false, held)
	require.NoError(t, err)
	assert.NotContains(t, []dlock.Owner{outer, other}, owner, "two runs of other names inside one would not exclude each other")
	_, err = ownerFor("a", true, held)
	assert.ErrorContains(t, err, "over a quorum no other process can re-enter it")
	_, err = ownerFor("c", true, held)
	require.NoError(t, err, "no run around this one holds c")
	_, err = ownerFor("a", true, env("DLOCK_OWNER="+outer.String()))
	assert.ErrorContains(t, err, "over a quorum no other process can use an owner: unset it")
	_, err = ownerFor("a", false, env("DLOCK_OWNER=nonsense"))
	_, wrong := errors.AsType[errUsage](err)
	assert.True(t, wrong)
	_, err = ownerFor("a", false, env("DLOCK_HELD=%zz"))
	assert.ErrorContains(t, err, "DLOCK_HELD is malformed")
}

func TestRunPassesStreamsStatusAndVariables(t *testing.T) {
	s := newShell(t)
	s.stdin = "input"
	status, out, _ := s.dlock("run", "a", "--ttl=10s", "--", "sh", "-c", `cat; echo " $DLOCK_NAME"; exit 7`)
	assert.Equal(t, 7, status)
	assert.Equal(t, "input a\n", out)
	status, _, _ = s.dlock("run", "a", "sh", "-c", "kill -TERM $$")
	assert.Equal(t, 128+15, status)
	status, _, _ = s.dlock("run", "--wait=0", "a", "true")
	assert.Equal(t, exitOK, status)
	status, _, _ = s.dlock("run", "a", "no-such-command-here")
	assert.Equal(t, exitNotFound, status)
	status, _, _ = s.dlock("run", "a", t.TempDir())
	assert.Equal(t, exitNotRun, status)
	status, _, _ = s.dlock("run", "a", filepath.Join(t.TempDir(), "missing"))
	assert.Equal(t, exitNotFound, status)
	status, out, _ = s.dlock("run", "a", "echo", "--", "--try")
	assert.Equal(t, exitOK, status)
	assert.Equal(t, "-- --try\n", out)
	state, err := s.client.Inspect(t.Context(), "a")
	require.NoError(t, err)
	assert.Empty(t, state.Holders)
}

func TestRunWaitsAsItIsTold(t *testing.T) {
	s := newShell(t)
	hold := s.hold("a")
	status, _, errs := s.dlock("run", "--try", "a", "true")
	assert.Equal(t, exitBusy, status)
	assert.Contains(t, errs, "held")
	for _, wait := range []string{"50ms", "0"} {
		status, _, _ = s.dlock("run", "--wait="+wait, "a", "true")
		assert.Equal(t, exitBusy, status, wait)
	}
	status, _, _ = s.dlock("run", "--try", "--shared", "a", "true")
	assert.Equal(t, exitBusy, status)
	require.NoError(t, hold.Unlock())
	reader, err := s.client.RWMutex("a").RLockContext(t.Context())
	require.NoError(t, err)
	defer reader.Unlock()
	for _, wait := range []string{"--try", "--wait=1m"} {
		status, _, _ = s.dlock("run", wait, "--shared", "a", "true")
		assert.Equal(t, exitOK, status, wait)
	}
}

func TestRunKillsTheCommandWhenTheLockIsBroken(t *testing.T) {
	s := newShell(t)
	go func() {
		for t.Context().Err() == nil {
			if n, _ := s.client.Break(t.Context(), "a"); n > 0 {
				return
			}
		}
	}()
	began := time.Now()
	status, _, errs := s.dlock("run", "--ttl=3s", "a", "sleep", "60")
	assert.Equal(t, exitLost, status)
	assert.Contains(t, errs, "is lost")
	assert.Less(t, time.Since(began), 30*time.Second)
}

func TestRunRefusesALeaseOfNoTime(t *testing.T) {
	for _, ttl := range []string{"0", "-30s"} {
		status, _, errs := newShell(t).dlock("run", "--ttl="+ttl, "a", "true")
		assert.Equal(t, exitFailed, status)
		assert.Contains(t, errs, "--ttl")
	}
}

// A signal ends a run whose store does not answer, although few stores take a context to open.
func TestSignalEndsARunThatOpensItsStore(t *testing.T) {
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	p := newShell(t).program()
	p.Stdout, p.Stderr = io.Discard, io.Discard
	p.Open = func(context.Context, string) (store.Store, error) {
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Signal(syscall.SIGTERM)
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
		}
		return nil, errors.New("no answer")
	}
	assert.Equal(t, 128+15, p.Run([]string{"run", "a", "true"}))
}

// 124 says that another owner has the lock. A store that does not answer says nothing like it.
func TestStoreThatIsNotOpenedIsAFailure(t *testing.T) {
	p := newShell(t).program()
	p.Stdout, p.Stderr = io.Discard, io.Discard
	p.Open = func(context.Context, string) (store.Store, error) { return nil, context.DeadlineExceeded }
	assert.Equal(t, exitFailed, p.Run([]string{"run", "a", "true"}))
}
