package ui

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/lockview"
)

const (
	rowsOfPage = 25
	mostShown  = 100 // holders, and waiters, of one lock
	maxNameLen = dlock.MaxNameLen
)

// listing is one page of locks.
type listing struct {
	Locks    []row `json:"locks"`
	All      int   `json:"all"`      // names in use
	Matching int   `json:"matching"` // of them, those with the text
	Page     int   `json:"page"`     // from 1
	Pages    int   `json:"pages"`
	CanBreak bool  `json:"can_break"`
}

// row is a lock in a listing.
type row struct {
	Name    string          `json:"name"`
	Key     string          `json:"key"`
	Holder  *lockview.Entry `json:"holder"` // one of them; null if the lock is free
	Holders int             `json:"holders"`
	Waiters int             `json:"waiters"`
	Error   string          `json:"error,omitempty"`
}

// detail is one lock with all that is shown of it.
type detail struct {
	lockview.Lock
	AllHolders int    `json:"all_holders"`
	AllWaiters int    `json:"all_waiters"`
	State      string `json:"state"` // the same as long as the holders are the same
}

// nameList reads the names once for all requests that come at about the same time, and
// has one answer for those that come while the store does not answer.
type nameList struct {
	client Client
	turn   chan struct{} // held by the request that reads
	names  []string
	err    error
	read   time.Time
}

func newNameList(client Client) *nameList {
	return &nameList{client: client, turn: make(chan struct{}, 1)}
}

func (l *nameList) get(ctx context.Context) ([]string, error) {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.turn }()
	if !l.read.IsZero() && time.Since(l.read) < namesLast {
		return l.names, l.err
	}
	names, err := l.client.List(ctx)
	if err != nil && ctx.Err() != nil { // this request has ended, which says nothing of the store
		return nil, err
	}
	l.names, l.err, l.read = names, err, time.Now()
	return names, err
}

// locks returns the page that the query asks for.
func (h *handler) locks(ctx context.Context, query url.Values) (*listing, error) {
	all, err := h.names.get(ctx)
	if err != nil {
		return nil, err
	}
	names := lockview.Matching(all, query.Get("q"))
	l := &listing{All: len(all), Matching: len(names), CanBreak: h.opts.Token != ""}
	l.Pages = max(1, (len(names)+rowsOfPage-1)/rowsOfPage)
	wanted, _ := strconv.Atoi(query.Get("page"))
	l.Page = min(max(wanted, 1), l.Pages)
	names = names[(l.Page-1)*rowsOfPage:]
	locks, err := h.view.Locks(ctx, names[:min(len(names), rowsOfPage)])
	if err != nil {
		return nil, err
	}
	l.Locks = make([]row, len(locks))
	for i, lock := range locks {
		r := row{Name: lock.Name, Key: lock.Key, Holders: len(lock.Holders), Waiters: len(lock.Queue), Error: lock.Error}
		if len(lock.Holders) > 0 {
			r.Holder = &lock.Holders[0]
		}
		l.Locks[i] = r
	}
	return l, nil
}

// lock returns the lock that the query asks for.
func (h *handler) lock(ctx context.Context, key string) (*detail, error) {
	name, err := lockview.NameOf(key)
	if err != nil || name == "" || len(name) > maxNameLen {
		return nil, errKey
	}
	lock, err := h.view.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	d := &detail{Lock: lock, AllHolders: len(lock.Holders), AllWaiters: len(lock.Queue), State: lockview.StateOf(lock.Holders)}
	d.Holders = lock.Holders[:min(len(lock.Holders), mostShown)]
	d.Queue = lock.Queue[:min(len(lock.Queue), mostShown)]
	return d, nil
}

var errKey = errors.New("the key is not that of a name")

// reply sends JSON, or an error with a status.
func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		status := http.StatusBadGateway
		switch {
		case errors.Is(err, errKey), errors.Is(err, dlock.ErrInvalidName):
			status = http.StatusBadRequest
		case errors.Is(err, dlock.ErrUnsupported):
			status = http.StatusNotImplemented
		case errors.Is(err, dlock.ErrClosed):
			status = http.StatusServiceUnavailable
		}
		refuse(w, status, err.Error())
		return
	}
	send(w, http.StatusOK, v)
}

func refuse(w http.ResponseWriter, status int, why string) {
	send(w, status, map[string]string{"error": why})
}

func send(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // the client may have gone
}

func (h *handler) getLocks(w http.ResponseWriter, r *http.Request) {
	l, err := h.locks(r.Context(), r.URL.Query())
	reply(w, l, err)
}

func (h *handler) getLock(w http.ResponseWriter, r *http.Request) {
	d, err := h.lock(r.Context(), r.URL.Query().Get("key"))
	reply(w, d, err)
}
