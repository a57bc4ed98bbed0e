package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

const (
	maxStreams = 100
	// A stream ends after this time and the page opens the next one, so that a server
	// that stops waits for no page.
	streamLasts = time.Minute
	writeLimit  = 10 * time.Second
)

// update is what a live page gets each time.
type update struct {
	Listing *listing `json:"listing,omitempty"`
	Lock    *detail  `json:"lock,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// getLive sends updates as server-sent events: the listing of the query, and the lock of
// the parameter key.
func (h *handler) getLive(w http.ResponseWriter, r *http.Request) {
	select {
	case h.streams <- struct{}{}:
		defer func() { <-h.streams }()
	default:
		refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("%d pages are live already", maxStreams))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), streamLasts)
	defer cancel()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep the events back
	control := http.NewResponseController(w)
	query := r.URL.Query()
	for {
		began := time.Now()
		data, err := json.Marshal(h.look(ctx, query))
		if err != nil || ctx.Err() != nil {
			return
		}
		control.SetWriteDeadline(time.Now().Add(writeLimit)) // not every server has one
		if _, err := fmt.Fprintf(w, "retry: 1000\ndata: %s\n\n", data); err != nil {
			return
		}
		if control.Flush() != nil {
			return
		}
		control.SetWriteDeadline(time.Time{}) // HTTP/2 resets the stream at a deadline, though nothing is written
		// A store that answers slowly is asked less often.
		pause := max(h.opts.Every, 2*time.Since(began))
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// look reads what a live page shows.
func (h *handler) look(ctx context.Context, query url.Values) update {
	var u update
	var err error
	if u.Listing, err = h.locks(ctx, query); err != nil {
		return update{Error: err.Error()}
	}
	if key := query.Get("key"); key != "" {
		if u.Lock, err = h.lock(ctx, key); err != nil {
			u.Error = err.Error()
		}
	}
	return u
}
