package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/internal/redistest"
)

// When the leader stops, the other instance leads.
func TestNextLeader(t *testing.T) {
	url := redistest.Start(t).URL()
	out, in := io.Pipe()
	lines := bufio.NewScanner(out)
	start := func(name string) (stop context.CancelFunc, end chan error) {
		ctx, stop := context.WithCancel(t.Context())
		end = make(chan error, 1)
		go func() { end <- run(ctx, []string{"-redis", url, "-name", name}, in) }()
		return stop, end
	}
	next := func() string { require.True(t, lines.Scan(), lines.Err()); return lines.Text() }

	stopOne, endOne := start("one")
	require.Regexp(t, `^one leads, token \d+$`, next())
	stopTwo, endTwo := start("two")
	stopOne()
	assert.Equal(t, "one leads no more: context canceled", next())
	assert.Regexp(t, `^two leads, token \d+$`, next())
	require.NoError(t, <-endOne)
	stopTwo()
	assert.Equal(t, "two leads no more: context canceled", next())
	require.NoError(t, <-endTwo)
}

// A leader that loses the lock stops its work, and stands again.
func TestLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := dlocktest.New(t, nil)
		ctx, stop := context.WithCancel(t.Context())
		terms := make(chan *dlock.Hold)
		end := make(chan error, 1)
		lock := client.Mutex("leader")
		go func() {
			end <- stand(ctx, lock, func(ctx context.Context) error {
				hold, err := lock.LockContext(ctx)
				if err != nil {
					return err
				}
				defer hold.Unlock()
				terms <- hold
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		first := <-terms
		store.Lose(first)
		second := <-terms
		assert.ErrorIs(t, first.Err(), dlock.ErrLost)
		assert.Greater(t, second.Token(), first.Token())
		stop()
		assert.NoError(t, <-end)
	})
}

// An instance stops when its client is closed.
func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := dlocktest.New(t, nil)
		require.NoError(t, client.Close())
		err := stand(t.Context(), client.Mutex("leader"), func(context.Context) error { return errors.New("leads") })
		assert.ErrorIs(t, err, dlock.ErrClosed)
	})
}
