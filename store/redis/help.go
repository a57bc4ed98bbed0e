package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/redis/rueidis"
)

// helpful is an error with a text that says what to do.
type helpful struct {
	text string
	err  error
}

func (e *helpful) Error() string { return e.text }
func (e *helpful) Unwrap() error { return e.err }

// advice says for replies of a server what to do about them, by how they begin.
var advice = []struct{ reply, do string }{
	{"WRONGPASS", "check user and password; in a URL their special characters are percent-encoded"},
	{"NOAUTH", "the server wants a password"},
	{"NOPERM", "the documentation of package redis lists the rights that a user needs"},
	{"OOM", "free memory or raise maxmemory; no hold is lost by this"},
	{"READONLY", "this server is a replica: connect to the master, or name the sentinels and their master_set"},
	{"This instance has cluster support disabled", "several hosts are nodes of a cluster; sentinels need master_set, and independent servers OpenQuorum"},
	{"DB index is out of range", "the server has fewer databases than the number in the URL (its setting `databases`)"},
}

// help adds to an error what to do, and takes off where in a script it arose.
func help(err error) error {
	var reply *rueidis.RedisError
	if !errors.As(err, &reply) {
		return err
	}
	text, where, inScript := strings.Cut(err.Error(), " script: ")
	inScript = inScript && strings.Contains(where, "user_script:")
	if !inScript {
		text = err.Error()
	}
	said := strings.TrimPrefix(reply.Error(), "ERR ")
	for _, a := range advice {
		if strings.HasPrefix(said, a.reply) {
			return &helpful{strings.TrimSuffix(text, ".") + " (" + a.do + ")", err}
		}
	}
	if !inScript {
		return err
	}
	return &helpful{text, err}
}

// helpOpen adds to an error of the first connection what to do.
func helpOpen(err error, overTLS bool) error {
	var reply *rueidis.RedisError
	var alert tls.AlertError
	var noTLS tls.RecordHeaderError
	switch silent := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET); {
	case errors.As(err, &reply):
		return help(err)
	case overTLS && (silent || errors.As(err, &noTLS)):
		return fmt.Errorf("%w (rediss:// asks for TLS: for a server without it write redis://)", err)
	case !overTLS && (silent || errors.As(err, &alert)):
		return fmt.Errorf("%w (a server that wants TLS needs rediss://)", err)
	}
	return err
}

// foreignKey names the key of a lock under which something else was found.
func (n *name) foreignKey(err error) error {
	return &helpful{fmt.Sprintf("%v (key %q, or a key beside it, was written by another program: delete it, or choose another Options.Prefix)", err, n.lock), err}
}
