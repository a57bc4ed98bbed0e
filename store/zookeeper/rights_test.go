package zookeeper_test

import (
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/zookeepertest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/zookeeper"
)

// TestRights: a user with no more than the rights of docs/zookeeper.md can do
// everything, and another user is refused for certain.
func TestRights(t *testing.T) {
	t.Parallel()
	e := zookeepertest.Start(t, 1)
	c := connect(t, e)
	const cdrw = zk.PermRead | zk.PermWrite | zk.PermCreate | zk.PermDelete
	_, err := c.Create("/app", nil, 0, zk.WorldACL(zk.PermRead))
	require.NoError(t, err)
	_, err = c.Create("/granted", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	for _, node := range []string{"locks", "clock"} {
		_, err := c.Create("/granted/"+node, nil, 0, zk.DigestACL(cdrw, "locker", "secret:with/marks"))
		require.NoError(t, err)
	}
	_, err = c.SetACL("/granted", zk.WorldACL(zk.PermRead), -1)
	require.NoError(t, err)

	user := strings.Replace(e.URL("/granted"), "zk://", "zk://locker:secret%3Awith%2Fmarks@", 1)
	a, b := open(t, user), open(t, user)
	events := hear(b)
	held, waits := request("rights", 1, false), request("rights", 2, true)
	hold(t, a, held)
	queue(t, b, waits)
	require.NoError(t, a.Renew(t.Context(), []store.Ref{refOf(held)})[0])
	names, err := a.List(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"rights"}, names)
	_, err = a.Inspect(t.Context(), "rights")
	require.NoError(t, err)
	n, err := a.Break(t.Context(), "rights")
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	wantGranted(t, b, events, waits)
	release(t, b, waits)

	stranger := open(t, e.URL("/granted"))
	_, err = stranger.Acquire(t.Context(), request("rights", 3, false))
	assert.ErrorIs(t, err, store.ErrRefused)

	_, err = zookeeper.Open(e.URL("/app"))
	assert.ErrorIs(t, err, zk.ErrNoAuth, "a root that cannot be made")
}

// TestOpenRefuses: what is no URL of a store is refused, and not repeated.
func TestOpenRefuses(t *testing.T) {
	for _, url := range []string{
		"http://canary", "zk://", "zk://:canary@a", "zk://canary@a", "zk://canary:@a", "zk://a?session_timeout=canary",
		"zk://a?session_timeout=600h", "zk://a?session_timeout=61m", "zk://a?session_timeout=500us", "zk://a?session_timeout=99ms",
	} {
		_, err := zookeeper.Open(url)
		require.ErrorIs(t, err, zookeeper.ErrInvalidURL, url)
		assert.NotContains(t, err.Error(), "canary")
	}
	_, err := zookeeper.New(nil, nil)
	assert.Error(t, err)
}
