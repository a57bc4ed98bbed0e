package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
)

// Servers that are well, each for itself, may be no quorum.
func TestCheckOpensTheQuorum(t *testing.T) {
	s := newShell(t)
	check := func(together error) (int, string) {
		var out locktest.Buffer
		p := s.program()
		open := p.Open
		p.Open = func(ctx context.Context, url string) (store.Store, error) {
			if strings.Contains(url, " ") {
				return memory.New(), together
			}
			return open(ctx, url)
		}
		p.Stdout, p.Stderr = &out, &out
		return p.Run([]string{"check", "--store", "test:// test:// test://"}), out.String()
	}
	status, out := check(errors.New("nodes 0 and 1 are one server"))
	assert.Equal(t, exitFailed, status)
	assert.Equal(t, "quorum: the servers cannot be opened together: nodes 0 and 1 are one server\n", out)
	status, _ = check(nil)
	assert.Equal(t, exitOK, status)
}

// The second of two servers is checked in its own time also if the first is down or hangs.
func TestCheckGoesOnAfterAServerThatCannotBeOpened(t *testing.T) {
	s := newShell(t)
	s.locks.Close()
	check := func(args ...string) (int, string) {
		var out locktest.Buffer
		p := s.program()
		open := p.Open
		p.Open = func(ctx context.Context, url string) (store.Store, error) {
			switch url {
			case "down://":
				return nil, errors.New("connection refused")
			case "hangs://":
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return open(ctx, url)
		}
		p.Stdout, p.Stderr = &out, &out
		return p.Run(append([]string{"check"}, args...)), out.String()
	}
	status, out := check("--store", "down:// test://")
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, out, "unreachable (server 1): it cannot be opened: connection refused\n")
	assert.Contains(t, out, "rights (server 2): ")
	status, out = check("--store", "test:// down://", "--json")
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, out, `{"topic":"unreachable","server":"server 2",`)
	assert.Equal(t, 2, strings.Count(out, "\n"))
	_, out = check("--store", "hangs:// test://", "--timeout", "1s")
	assert.Contains(t, out, "unreachable (server 1): it cannot be opened: context deadline exceeded\n")
	assert.Contains(t, out, "rights (server 2): ")
}
