package redistest

import (
	"bufio"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRESPValuesEndWhereTheyShould(t *testing.T) {
	for _, wire := range []string{
		"+OK\r\n", "-ERR no\r\n", ":1\r\n", "_\r\n", ",1.5\r\n", "#t\r\n", "(123\r\n",
		"$0\r\n\r\n", "$2\r\n\r\n\r\n", "$-1\r\n", "*-1\r\n", "*0\r\n", "=5\r\ntxt:a\r\n", "!3\r\nERR\r\n",
		"*2\r\n*1\r\n:1\r\n$1\r\na\r\n",
		"%1\r\n+k\r\n*2\r\n:1\r\n:2\r\n", "~2\r\n:1\r\n:2\r\n",
		"|1\r\n+ttl\r\n:5\r\n*1\r\n|1\r\n+a\r\n+b\r\n:7\r\n",
		">3\r\n$8\r\nsmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
		"$70000\r\n" + strings.Repeat("x", 70000) + "\r\n",
	} {
		r := bufio.NewReader(strings.NewReader(wire + "+next\r\n"))
		v, err := readValue(r)
		require.NoError(t, err, "%q", wire)
		require.Equal(t, wire, string(v.raw))
		v, err = readValue(r)
		require.NoError(t, err, "%q", wire)
		require.Equal(t, "+next\r\n", string(v.raw))
	}
	v, err := readValue(bufio.NewReader(strings.NewReader(">3\r\n$8\r\nsmessage\r\n$1\r\nc\r\n$1\r\nm\r\n")))
	require.NoError(t, err)
	require.Equal(t, "smessage", v.first)
	for _, wire := range []string{"", "\r\n", "?\r\n", "*x\r\n", "$5\r\nab", "*2\r\n:1\r\n"} {
		_, err := readValue(bufio.NewReader(strings.NewReader(wire)))
		require.Error(t, err, "%q", wire)
		_, _, err = readRequest(bufio.NewReader(strings.NewReader(wire)))
		require.Error(t, err, "%q", wire)
	}
}
