package redisfence_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/fence/redisfence"
)

// answering returns a client of a server that answers scripts with that reply and all else
// with OK.
func answering(t *testing.T, reply string) rueidis.Client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answer(conn, reply)
		}
	}()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{listener.Addr().String()}, AlwaysRESP2: true, DisableCache: true, ForceSingleClient: true,
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// answer reads commands, which are arrays of texts.
func answer(conn net.Conn, reply string) {
	defer conn.Close()
	for r := bufio.NewReader(conn); ; {
		var words, size int
		if _, err := fmt.Fscanf(r, "*%d\r\n", &words); err != nil {
			return
		}
		var command string
		for i := range words {
			if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
				return
			}
			word := make([]byte, size+2)
			if _, err := io.ReadFull(r, word); err != nil {
				return
			}
			if i == 0 {
				command = strings.ToUpper(string(word[:size]))
			}
		}
		said := "+OK\r\n"
		if strings.HasPrefix(command, "EVAL") {
			said = reply
		}
		if _, err := io.WriteString(conn, said); err != nil {
			return
		}
	}
}

// A reply that is not the script's says nothing of the register: it is neither a value nor a
// refusal, which would say that the access was certainly not admitted.
func TestForeignReplies(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{
		"*1\r\n:1\r\n", "*3\r\n:1\r\n:2\r\n:3\r\n", "*2\r\n:0\r\n$3\r\nten\r\n", "*2\r\n:0\r\n$-1\r\n", "+OK\r\n", "-ERR other\r\n",
	} {
		r := redisfence.New(answering(t, reply), "r")
		value, ok, err := r.Get(t.Context(), 7)
		for _, err := range []error{err, r.Set(t.Context(), 7, "value")} {
			require.ErrorContains(t, err, "redisfence: ", "%q", reply)
			require.NotErrorIs(t, err, fence.ErrStale, "%q", reply)
			require.NotErrorIs(t, err, redisfence.ErrForeignKey, "%q", reply)
		}
		require.False(t, ok, "%q", reply)
		require.Empty(t, value, "%q", reply)
	}

	// A value that is no text.
	r := redisfence.New(answering(t, "*2\r\n:1\r\n*1\r\n:5\r\n"), "r")
	_, ok, err := r.Get(t.Context(), 7)
	require.ErrorContains(t, err, "redisfence: unexpected reply")
	require.False(t, ok)

	// As the script answers.
	r = redisfence.New(answering(t, "*2\r\n:1\r\n$5\r\nvalue\r\n"), "r")
	require.Equal(t, "value", get(t, r, 7))
	r = redisfence.New(answering(t, "*2\r\n:0\r\n$1\r\n9\r\n"), "r")
	refuses(t, r, 7, 9)
}
