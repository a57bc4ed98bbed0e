package ui_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/ui"
)

// answer notes the write deadlines that are set, and ends its request with the last one.
type answer struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
	end       context.CancelFunc
}

func (a *answer) SetWriteDeadline(t time.Time) error {
	if a.deadlines = append(a.deadlines, t); len(a.deadlines) == 4 {
		a.end()
	}
	return nil
}

// A server of HTTP/2 resets a stream when its write deadline passes, though nothing is written. So none is left
// between two events.
func TestNoDeadlineBetweenEvents(t *testing.T) {
	client, _ := dlocktest.New(t, nil)
	page, err := ui.New(client, &ui.Options{Every: 100 * time.Millisecond})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := &answer{httptest.NewRecorder(), nil, cancel}
	page.ServeHTTP(a, httptest.NewRequestWithContext(ctx, "GET", "/api/live", nil))
	require.Len(t, a.deadlines, 4)
	for i, deadline := range a.deadlines {
		require.Equal(t, i%2 == 1, deadline.IsZero(), "deadline %d is %v", i, deadline)
	}
}
