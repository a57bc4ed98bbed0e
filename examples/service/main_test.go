package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store/redis"
)

// service is a running program.
type service struct {
	url  string
	stop context.CancelFunc
	end  chan error
}

func start(t *testing.T, args ...string) service {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	s := service{stop: stop, end: make(chan error, 1)}
	go func() { s.end <- run(ctx, append(args, "-addr", "127.0.0.1:0"), in) }()
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	go io.Copy(io.Discard, lines) // what run prints later
	t.Cleanup(stop)
	s.url = strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
	return s
}

func (s service) reserve(t *testing.T, sku string) int {
	t.Helper()
	answer, err := http.Post(s.url+"/reserve/"+sku, "", nil)
	if !assert.NoError(t, err) {
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}

// Requests that come together sell what there is, and no more.
func TestSellsWhatThereIs(t *testing.T) {
	s := start(t, "-work", "1ms", "-wait", "1m")
	answers := make(chan int, 30)
	var wg sync.WaitGroup
	for range cap(answers) {
		wg.Go(func() { answers <- s.reserve(t, "mug") })
	}
	wg.Wait()
	close(answers)
	count := make(map[int]int)
	for status := range answers {
		count[status]++
	}
	assert.Equal(t, map[int]int{http.StatusNoContent: units, http.StatusGone: cap(answers) - units}, count)

	s.stop()
	assert.NoError(t, <-s.end)
}

// The service answers the request that runs when it is stopped, and leaves no lock.
func TestShutdown(t *testing.T) {
	server := redistest.Start(t)
	locks, err := redis.Open(server.URL())
	require.NoError(t, err)
	defer locks.Close()
	s := start(t, "-redis", server.URL(), "-work", "1s", "-wait", "1m")
	answer := make(chan int)
	go func() { answer <- s.reserve(t, "mug") }()
	require.Eventually(t, func() bool {
		state, err := locks.Inspect(t.Context(), "sku/mug")
		return err == nil && len(state.Holders) == 1
	}, 30*time.Second, time.Millisecond)

	s.stop()
	assert.Equal(t, http.StatusNoContent, <-answer)
	require.NoError(t, <-s.end)
	state, err := locks.Inspect(t.Context(), "sku/mug")
	require.NoError(t, err)
	assert.Empty(t, state.Holders)
}

// Another process holds the lock for longer than a request waits.
func TestBusy(t *testing.T) {
	server := redistest.Start(t)
	locks, err := redis.Open(server.URL())
	require.NoError(t, err)
	defer locks.Close()
	client, err := dlock.New(locks, nil)
	require.NoError(t, err)
	defer client.Close()
	s := start(t, "-redis", server.URL(), "-wait", "1s")
	err = client.Mutex("sku/mug").Do(t.Context(), func(context.Context) error {
		assert.Equal(t, http.StatusConflict, s.reserve(t, "mug"))
		return nil
	})
	assert.NoError(t, err)
	s.stop()
	assert.NoError(t, <-s.end)
}

func TestWrongUse(t *testing.T) {
	assert.ErrorContains(t, run(t.Context(), []string{"-redis", "http://x"}, io.Discard), "URL")
	assert.ErrorContains(t, run(t.Context(), []string{"-addr", "127.0.0.1:none"}, io.Discard), "port")
}
