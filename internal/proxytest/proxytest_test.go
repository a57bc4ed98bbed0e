package proxytest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const long, short = 10 * time.Second, 100 * time.Millisecond

// site is a proxy and the server behind it, which accepts connections by hand.
type site struct {
	*Proxy
	t      *testing.T
	server net.Listener
}

func start(t *testing.T) *site {
	t.Helper()
	server := listen(t, "127.0.0.1:0")
	return &site{Proxy: Start(t, server.Addr().String()), t: t, server: server}
}

func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	server, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	return server
}

// dial connects to the proxy.
func (s *site) dial() net.Conn {
	s.t.Helper()
	near, err := net.Dial("tcp", s.Addr)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { near.Close() })
	return near
}

// connect returns both ends of a connection through the proxy.
func (s *site) connect() (near, far net.Conn) {
	s.t.Helper()
	near = s.dial()
	far, err := s.server.Accept()
	require.NoError(s.t, err)
	s.t.Cleanup(func() { far.Close() })
	return near, far
}

func say(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(from, text)
	require.NoError(t, err)
	got := make([]byte, len(text))
	require.NoError(t, to.SetReadDeadline(time.Now().Add(long)))
	_, err = io.ReadFull(to, got)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}

// silent asserts that nothing arrives, not even an end.
func silent(t *testing.T, at net.Conn) {
	t.Helper()
	require.NoError(t, at.SetReadDeadline(time.Now().Add(short)))
	_, err := at.Read(make([]byte, 1))
	require.ErrorContains(t, err, "timeout")
}

// ends asserts that the connection ends and nothing arrives before.
func ends(t *testing.T, at net.Conn) {
	t.Helper()
	require.NoError(t, at.SetReadDeadline(time.Now().Add(long)))
	_, err := at.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotContains(t, err.Error(), "timeout")
}

func TestForwardsAndCuts(t *testing.T) {
	s := start(t)
	near, far := s.connect()
	say(t, near, far, "question")
	say(t, far, near, "answer")
	s.Cut()
	ends(t, near)
	ends(t, far)
	near, far = s.connect()
	say(t, near, far, "again")

	// The end of one direction arrives behind what was sent before it.
	_, err := io.WriteString(near, "last")
	require.NoError(t, err)
	require.NoError(t, near.(*net.TCPConn).CloseWrite())
	all, err := io.ReadAll(far)
	require.NoError(t, err)
	require.Equal(t, "last", string(all))
	say(t, far, near, "heard")
}

func TestBlackholeSwallowsUntilItGoesOff(t *testing.T) {
	s := start(t)
	near, far := s.connect()
	s.Blackhole(true)
	_, err := io.WriteString(near, "lost")
	require.NoError(t, err)
	silent(t, far)
	fresh := s.dial()
	_, err = io.WriteString(fresh, "lost")
	require.NoError(t, err)
	silent(t, fresh)
	require.NoError(t, far.Close())
	silent(t, near) // nobody has heard of the end
	s.Blackhole(false)
	ends(t, near)
	ends(t, fresh)
	near, far = s.connect()
	say(t, near, far, "after")
}

func TestBlackholeLeavesIdleConnectionsAlone(t *testing.T) {
	s := start(t)
	near, far := s.connect()
	say(t, near, far, "before")
	s.Blackhole(true)
	s.Blackhole(false)
	say(t, near, far, "after")
	say(t, far, near, "back")

	s.Blackhole(true)
	require.NoError(t, far.Close())
	silent(t, near) // the end is lost too
	s.Blackhole(false)
	ends(t, near)
}

func TestProxyWithoutServerClosesConnections(t *testing.T) {
	s := start(t)
	require.NoError(t, s.server.Close())
	ends(t, s.dial())
	s.server = listen(t, s.server.Addr().String())
	near, far := s.connect()
	say(t, near, far, "it runs again")
}

func TestRetarget(t *testing.T) {
	s := start(t)
	near, far := s.connect()
	s.server = listen(t, "127.0.0.1:0")
	s.Retarget(s.server.Addr().String())
	ends(t, near)
	ends(t, far)
	near, far = s.connect()
	say(t, near, far, "the other server")
}

func TestForwardAsksFirst(t *testing.T) {
	s := start(t)
	s.Proxy = StartWith(t, s.server.Addr().String(), func(l *Link) {
		l.Forward(func(to net.Conn, arrived []byte) error {
			return Write(to, bytes.ToUpper(arrived))
		}, func(net.Conn, []byte) error {
			l.Cut()
			return errors.New("no answers")
		})
	})
	near, far := s.connect()
	_, err := io.WriteString(near, "question")
	require.NoError(t, err)
	got := make([]byte, len("question"))
	_, err = io.ReadFull(far, got)
	require.NoError(t, err)
	require.Equal(t, "QUESTION", string(got))
	_, err = io.WriteString(far, "answer")
	require.NoError(t, err)
	ends(t, near)
}
