package redis_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
)

const canary = "canary-p4ss/w0rd"

// as is the URL of a server for a user with the canary as password.
func as(user, addr string) string {
	return fmt.Sprintf("redis://%s:%s@%s", user, url.QueryEscape(canary), addr)
}

// noCanary asserts that a text has no secret, in any form that it has in URLs
// and in Go.
func noCanary(t testing.TB, text string) {
	t.Helper()
	for _, form := range []string{canary, url.QueryEscape(canary), url.PathEscape(canary), "p4ss"} {
		require.NotContains(t, text, form)
	}
}

// The password is changed under a hold, and all connections are closed. The
// error surfaces, the holder is told before the lease is over, nothing that
// anybody can read has the password, and when it is right again all works.
func TestFault34PasswordRotated(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.MustDo("ACL", "SETUSER", "locker", "on", ">"+canary, "~*", "&*", "+@all")
	a, b := startProgram(t, as("locker", server.Addr)), startProgram(t, server.URL())
	waiter := startProgram(t, as("locker", server.Addr))
	h := a.take("a")
	w := waiter.queue("a")
	var seen []error

	began := time.Now()
	server.MustDo("ACL", "SETUSER", "locker", "resetpass", ">another password")
	server.MustDo("CLIENT", "KILL", "USER", "locker")
	until(t, "the new connection is refused", func() bool {
		_, err := a.store.Acquire(bounded(t), want("b", 1))
		seen = append(seen, err)
		require.Error(t, err)
		return strings.Contains(err.Error(), "WRONGPASS")
	})
	require.ErrorIs(t, seen[len(seen)-1], store.ErrRefused)
	_, err := a.Mutex("b").LockContext(bounded(t))
	require.ErrorIs(t, err, dlock.ErrRefused)
	seen = append(seen, err, w.fails(began, lease+slack))
	seen = append(seen, a.store.Renew(bounded(t), []store.Ref{of(want("b", 1))})...)
	seen = append(seen, a.store.Release(bounded(t), of(want("b", 1))))
	_, err = a.store.Inspect(bounded(t), "b")
	seen = append(seen, err)
	for _, warning := range a.store.Check(bounded(t)) {
		seen = append(seen, fmt.Errorf("%v %+v", warning, warning))
	}
	next := b.call("a")
	told(t, h, began, lease+slack)
	require.Greater(t, next.comes(began, lease+byAsking+slack).Token(), h.Token())

	for _, err := range seen {
		noCanary(t, fmt.Sprintf("%v %+v %q %#v", err, err, err, err))
	}
	require.Contains(t, a.said.String(), "WRONGPASS")
	noCanary(t, a.said.String()+waiter.said.String())
	noCanary(t, fmt.Sprintf("%v %+v", a.store, waiter.store))

	server.MustDo("ACL", "SETUSER", "locker", ">"+canary)
	until(t, "it works again", func() bool {
		_, err := a.Mutex("c").TryLockContext(bounded(t))
		return err == nil
	})
}

// NOAUTH: a password is asked for where none was, on connections that are open
// and on new ones.
func TestFault34PasswordIntroduced(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.MustDo("ACL", "SETUSER", "admin", "on", ">admin", "~*", "&*", "+@all")
	a := startProgram(t, server.URL())
	admin := startClient(t, server.Addr)
	require.NoError(t, admin("AUTH", "admin", "admin"))
	h := a.take("a")
	began := time.Now()
	require.NoError(t, admin("ACL", "SETUSER", "default", "resetpass", ">"+canary))
	require.NoError(t, admin("CLIENT", "KILL", "USER", "default"))
	until(t, "it is refused", func() bool {
		_, err := a.store.Acquire(bounded(t), want("b", 1))
		return err != nil && strings.Contains(err.Error(), "NOAUTH")
	})
	_, err := a.store.Acquire(bounded(t), want("b", 1))
	require.ErrorIs(t, err, store.ErrRefused)
	told(t, h, began, lease+slack)
	require.NoError(t, admin("ACL", "SETUSER", "default", "nopass"))
	until(t, "it works again", func() bool {
		_, err := a.Mutex("c").TryLockContext(bounded(t))
		return err == nil
	})
}

// The user may not use channels. Locks work all the same: a release is a
// release, and waiters come in by asking. Check says so beforehand.
func TestFault35NoRightToChannels(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.MustDo("ACL", "SETUSER", "locker", "on", ">"+canary, "~*", "resetchannels", "+@all")
	a, b := startProgram(t, as("locker", server.Addr)), startProgram(t, as("locker", server.Addr))
	require.Contains(t, topics(a.store), "rights")
	token := uint64(0)
	for range 3 {
		h := a.take("a")
		require.Greater(t, h.Token(), token)
		w := b.queue("a")
		began := time.Now()
		require.NoError(t, h.Unlock())
		next := w.comes(began, byAsking)
		require.Greater(t, next.Token(), h.Token())
		kept(t, lease/2, next)
		token = next.Token()
		began = time.Now()
		require.NoError(t, next.Unlock())
		require.Less(t, time.Since(began), slack)
	}
	// At the store, where nobody tries again.
	first, second := want("b", 1), want("b", 2)
	second.Queue = true
	for _, r := range []store.Request{first, second} {
		_, err := a.store.Acquire(bounded(t), r)
		require.NoError(t, err)
	}
	require.NoError(t, a.store.Release(bounded(t), of(first)))
	require.NoError(t, a.store.Release(bounded(t), of(second)))
	// The right to send alone is missing, or the right to listen.
	for _, missing := range []string{"-spublish", "-ssubscribe"} {
		server.MustDo("ACL", "SETUSER", "locker", "&*", "+@all", missing)
		server.MustDo("CLIENT", "KILL", "USER", "locker") // or the subscriptions there are go on
		p, q := startProgram(t, as("locker", server.Addr)), startProgram(t, as("locker", server.Addr))
		h := p.take(missing)
		w := q.queue(missing)
		began := time.Now()
		require.NoError(t, h.Unlock())
		require.NoError(t, w.comes(began, byAsking).Unlock())
	}
}

// The user may not use the keys, or a command: every call says so at once, in
// words that name the command, and nothing is held.
func TestFault35NoRightToKeysOrCommands(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for i, rule := range []string{"~other:* +@all", "~* +@all -evalsha", "~* +@all -hset", "~* +@all -time", "~* +@all -set", "~* +@all -pexpire"} {
		user := fmt.Sprint("user", i)
		args := append([]string{"ACL", "SETUSER", user, "on", ">" + canary, "&*"}, strings.Fields(rule)...)
		server.MustDo(args...)
		p := startProgram(t, as(user, server.Addr))
		require.Contains(t, topics(p.store), "rights", rule)
		began := time.Now()
		_, err := p.store.Acquire(bounded(t), want("a", 1))
		require.ErrorIs(t, err, store.ErrRefused, rule)
		_, err = p.Mutex("a").LockContext(bounded(t))
		require.ErrorIs(t, err, dlock.ErrRefused, rule)
		noCanary(t, err.Error())
		require.Less(t, time.Since(began), slack)
		require.NoError(t, startProgram(t, server.URL()).take("a").Unlock(), "%s: it is not free", rule)
	}
}

// The user may not use a command that comes late in a script, so half of what it writes is there. The
// hold beside it goes on, and keeps others out.
func TestFault35NoRightToLateCommands(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	for i, missing := range []string{"-hdel", "-pexpireat"} {
		user := fmt.Sprint("user", i)
		server.MustDo("ACL", "SETUSER", user, "on", ">"+canary, "~*", "&*", "+@all", missing)
		held, waits, other := want(missing, 1), want(missing, 2), want(missing, 3)
		held.TTL, waits.Queue = lease/2, true
		without := open(t, as(user, server.Addr))
		_, err := s.Acquire(bounded(t), held)
		require.NoError(t, err)
		_, err = without.Acquire(bounded(t), waits)
		require.ErrorIs(t, err, store.ErrRefused, missing)
		for began := time.Now(); time.Since(began) < 2*held.TTL; time.Sleep(held.TTL / 10) {
			require.NoError(t, s.Renew(bounded(t), []store.Ref{of(held)})[0], missing)
			g, err := s.Acquire(bounded(t), other)
			require.Error(t, err, missing)
			require.False(t, g.Held, missing)
		}
		require.NoError(t, s.Release(bounded(t), of(held)), missing)
		until(t, "the lock is free", func() bool {
			g, err := s.Acquire(bounded(t), other)
			return err == nil && g.Held
		})
	}
}

// The rights are taken away under a hold: it is lost in time, with the reason in
// the log, and it can be released as soon as they are back.
func TestFault35RightsTakenAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.MustDo("ACL", "SETUSER", "locker", "on", ">"+canary, "~*", "&*", "+@all")
	a, b := startProgram(t, as("locker", server.Addr)), startProgram(t, server.URL())
	h, other := a.take("a"), a.take("b")
	w := b.queue("a")
	began := time.Now()
	server.MustDo("ACL", "SETUSER", "locker", "-evalsha", "-eval", "-hdel")
	require.ErrorIs(t, other.Unlock(), dlock.ErrUnavailable)
	told(t, h, began, lease+slack)
	require.Contains(t, a.said.String(), "NOPERM")
	require.Greater(t, w.comes(began, lease+byAsking+slack).Token(), h.Token())
	server.MustDo("ACL", "SETUSER", "locker", "+@all")
	require.NoError(t, a.take("b").Unlock())
}
