package ui

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/dlock-go/dlock/internal/lockview"
)

// breakRequest is the body of a request to break a lock.
type breakRequest struct {
	Key   string `json:"key"`
	State string `json:"state"` // of the detail that the operator saw
}

const maxBody = 16 << 10

// postBreak breaks a lock. It wants the token, the page's own origin, and the state of
// the holders that the operator saw. It refuses if that state has changed. A holder that is
// granted after this look is broken too, because Break removes all holders of its moment.
func (h *handler) postBreak(w http.ResponseWriter, r *http.Request) {
	if h.opts.Token == "" {
		refuse(w, http.StatusForbidden, "this page breaks no locks: it has no token")
		return
	}
	if !sameOrigin(r) {
		refuse(w, http.StatusForbidden, "the request comes from another site")
		return
	}
	if !h.authorized(r) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="dlock"`)
		refuse(w, http.StatusUnauthorized, "the token is wrong")
		return
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, "want application/json")
		return
	}
	var request breakRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&request); err != nil {
		refuse(w, http.StatusBadRequest, "the body is not the expected JSON")
		return
	}
	seen, err := h.lock(r.Context(), request.Key)
	if err != nil {
		reply(w, nil, err)
		return
	}
	if request.State != seen.State {
		refuse(w, http.StatusConflict, "the holders have changed since the question; look again")
		return
	}
	name, _ := lockview.NameOf(request.Key) // h.lock has checked the key
	broken, err := h.client.Break(r.Context(), name)
	reply(w, map[string]int{"broken": broken}, err)
}

// authorized compares the token in constant time. The hashes have the same length, so the
// length of the token does not show either.
func (h *handler) authorized(r *http.Request) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	want, got := sha256.Sum256([]byte(h.opts.Token)), sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1 && ok
}

// sameOrigin reports whether a browser says that the page itself sends the request. A client
// that is no browser says neither, and has the token.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	from, err := url.Parse(origin)
	return err == nil && from.Host == r.Host
}
