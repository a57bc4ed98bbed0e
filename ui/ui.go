// Package ui is a page that shows the locks of a store: names, holders, waiters and
// ages, live. A service mounts it; dlock ui serves it alone.
//
//	page, err := ui.New(client, nil)
//	...
//	mux.Handle("/locks/", http.StripPrefix("/locks", page))
//
// The page needs nothing but what this package has embedded. It has no login: whoever
// can open it reads names and labels, so mount it where only operators come. It changes
// nothing unless a token is set. With Options.Token, whoever knows the token can break
// locks.
package ui

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/dlock-go/dlock/internal/lockview"
	"github.com/dlock-go/dlock/store"
)

// Client is what the page asks. A *dlock.Client is one.
type Client interface {
	Inspect(ctx context.Context, name string) (store.State, error)
	List(ctx context.Context) ([]string, error)
	Break(ctx context.Context, name string) (int, error)
}

// Options configure the page. The zero value of a field means the default.
type Options struct {
	// Token allows to break locks. The page asks the operator for it. At least 16
	// characters of printable ASCII, the first and last no space. Default none: the page
	// changes nothing.
	Token string
	// Every is how long an open page waits before it looks at the store again, or twice as
	// long as the last look took if that is more. One look lists the names and inspects
	// those that are shown, 25 at most. Default 500 ms; at least 100 ms.
	Every time.Duration
}

const (
	minToken = 16
	minEvery = 100 * time.Millisecond
	// names are read once for all pages that ask within this time.
	namesLast = 200 * time.Millisecond
)

//go:embed assets
var embedded embed.FS

// handler is the page with its interface.
type handler struct {
	view    *lockview.View
	client  Client
	opts    Options
	names   *nameList
	streams chan struct{} // one for each live page
	mux     *http.ServeMux
}

// New returns the page. Mount it at a path that ends with a slash, with
// [http.StripPrefix]. The client stays the caller's. Requests end with their contexts.
func New(client Client, opts *Options) (http.Handler, error) {
	if client == nil {
		return nil, errors.New("ui: the client is nil")
	}
	h := &handler{view: lockview.New(client), client: client, streams: make(chan struct{}, maxStreams), mux: http.NewServeMux()}
	if opts != nil {
		h.opts = *opts
	}
	if h.opts.Every == 0 {
		h.opts.Every = 500 * time.Millisecond
	}
	if h.opts.Every < minEvery {
		return nil, fmt.Errorf("ui: Every is %v, at least %v are needed", h.opts.Every, minEvery)
	}
	if n := len(h.opts.Token); n > 0 && n < minToken {
		return nil, fmt.Errorf("ui: the token has %d bytes, at least %d are needed", n, minToken)
	}
	if t := h.opts.Token; strings.Trim(t, " ") != t || strings.ContainsFunc(t, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, errors.New("ui: the token has a character that is not printable ASCII, or begins or ends with a space: browsers do not send it unchanged")
	}
	h.names = newNameList(client)
	assets, err := fs.Sub(embedded, "assets")
	if err != nil {
		return nil, err
	}
	files := http.FileServerFS(assets)
	for _, path := range []string{"GET /{$}", "GET /page.js", "GET /picture.js", "GET /page.css"} {
		h.mux.Handle(path, files)
	}
	h.mux.HandleFunc("GET /api/locks", h.getLocks)
	h.mux.HandleFunc("GET /api/lock", h.getLock)
	h.mux.HandleFunc("GET /api/live", h.getLive)
	h.mux.HandleFunc("POST /api/break", h.postBreak)
	return h, nil
}

// policy allows what this page has embedded and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", policy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("X-Frame-Options", "DENY")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cache-Control", "no-store")
	if r.URL.Path == "" { // mounted at /locks, and /locks was asked for: links are relative to /locks/
		path, _, _ := strings.Cut(r.RequestURI, "?")
		if strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") {
			http.Redirect(w, r, path+"/", http.StatusSeeOther)
			return
		}
	}
	h.mux.ServeHTTP(w, r)
}
