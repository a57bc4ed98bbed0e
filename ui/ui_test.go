package ui_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/dlock-go/dlock/ui"
)

const token = "a token of this test"

// site is the page of a client on a memory store.
type site struct {
	*httptest.Server
	t      *testing.T
	client *dlock.Client
}

func start(t *testing.T, o *ui.Options) *site {
	t.Helper()
	st := memory.New()
	client, err := dlock.New(st, &dlock.Options{Label: "host-a/12"})
	require.NoError(t, err)
	page, err := ui.New(client, o)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/ops/locks/", http.StripPrefix("/ops/locks", page))
	mux.Handle("/ops/locks", http.StripPrefix("/ops/locks", page))
	s := &site{httptest.NewServer(mux), t, client}
	t.Cleanup(func() { s.Close(); client.Close(); st.Close() })
	return s
}

func (s *site) hold(name string) *dlock.Hold {
	s.t.Helper()
	hold, err := s.client.Mutex(name).LockContext(s.t.Context())
	require.NoError(s.t, err)
	return hold
}

// get returns the status and what was sent, decoded if it is JSON.
func (s *site) get(path string, into any) int {
	s.t.Helper()
	response, err := http.Get(s.URL + "/ops/locks/" + path)
	require.NoError(s.t, err)
	defer response.Body.Close()
	if into != nil {
		require.NoError(s.t, json.NewDecoder(response.Body).Decode(into))
	}
	return response.StatusCode
}

type listing struct {
	Locks []struct {
		Name, Key        string
		Holders, Waiters int
		Holder           *struct{ Label, Mode, Token string }
	}
	All, Matching, Page, Pages int
	CanBreak                   bool `json:"can_break"`
}

type detail struct {
	Key, State     string
	Holders, Queue []struct{ ID, Owner, Label string }
}

func TestPageIsServedWithAPolicy(t *testing.T) {
	s := start(t, nil)
	for path, kind := range map[string]string{"": "text/html", "page.js": "javascript", "picture.js": "javascript", "page.css": "text/css"} {
		response, err := http.Get(s.URL + "/ops/locks/" + path)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, response.StatusCode, path)
		assert.Contains(t, response.Header.Get("Content-Type"), kind, path)
		policy := response.Header.Get("Content-Security-Policy")
		assert.Contains(t, policy, "default-src 'none'")
		assert.NotContains(t, policy, "unsafe")
		assert.NotContains(t, policy, "http")
		assert.Equal(t, "nosniff", response.Header.Get("X-Content-Type-Options"))
		for _, external := range []string{"src=\"http", "href=\"http", "url(", "@import", "innerHTML"} {
			assert.NotContains(t, string(body), external, path)
		}
	}
	assert.Equal(t, http.StatusNotFound, s.get("assets", nil))
}

func TestPageWithoutTheSlashIsRedirected(t *testing.T) {
	s := start(t, nil)
	response, err := http.Get(s.URL + "/ops/locks")
	require.NoError(t, err)
	response.Body.Close()
	assert.Equal(t, "/ops/locks/", response.Request.URL.Path)
	assert.Equal(t, http.StatusOK, response.StatusCode)
}

func TestListingShowsHoldersAndWaiters(t *testing.T) {
	s := start(t, nil)
	hold := s.hold("sku/4711")
	defer hold.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.client.Mutex("sku/4711").LockContext(ctx) }()
	defer func() { cancel(); <-done }()

	var l listing
	require.Eventually(t, func() bool {
		l = listing{}
		s.get("api/locks", &l)
		return len(l.Locks) == 1 && l.Locks[0].Waiters == 1
	}, 10*time.Second, 10*time.Millisecond)
	assert.Equal(t, "sku/4711", l.Locks[0].Name)
	assert.Equal(t, "host-a/12", l.Locks[0].Holder.Label)
	assert.Equal(t, fmt.Sprint(hold.Token()), l.Locks[0].Holder.Token)
	assert.False(t, l.CanBreak)

	var d detail
	assert.Equal(t, http.StatusOK, s.get("api/lock?key="+l.Locks[0].Key, &d))
	require.Len(t, d.Holders, 1)
	require.Len(t, d.Queue, 1)
	assert.Len(t, d.Holders[0].Owner, 6, "an owner is shown whole")
	assert.Equal(t, http.StatusBadRequest, s.get("api/lock?key=@", nil))
	assert.Equal(t, http.StatusBadRequest, s.get("api/lock", nil))
}

func TestTenThousandLocksAreSearchedAndPaged(t *testing.T) {
	s := start(t, nil)
	for i := range 10_000 {
		s.hold(fmt.Sprintf("order/%05d", i))
	}
	var l listing
	began := time.Now()
	s.get("api/locks", &l)
	assert.Less(t, time.Since(began), 5*time.Second)
	assert.Equal(t, 10_000, l.All)
	assert.Equal(t, 400, l.Pages)
	require.Len(t, l.Locks, 25)
	assert.Equal(t, "order/00000", l.Locks[0].Name)

	s.get("api/locks?page=400", &l)
	assert.Equal(t, "order/09999", l.Locks[len(l.Locks)-1].Name)
	s.get("api/locks?page=99999&q=ORDER/0123", &l)
	assert.Equal(t, 10, l.Matching)
	assert.Equal(t, 1, l.Page)
	assert.Equal(t, "order/01230", l.Locks[0].Name)
}

func TestNamesOfAnyBytesKeepTheirIdentity(t *testing.T) {
	s := start(t, nil)
	name := "\x00<script>\xff\n"
	s.hold(name)
	var l listing
	s.get("api/locks", &l)
	require.Len(t, l.Locks, 1)
	assert.Equal(t, fmt.Sprintf("%q", name), l.Locks[0].Name)
	var d detail
	s.get("api/lock?key="+l.Locks[0].Key, &d)
	assert.Len(t, d.Holders, 1)
}

// live reads updates until one fits.
func (s *site) live(query string, fits func(l listing, d *detail) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, "GET", s.URL+"/ops/locks/api/live"+query, nil)
	require.NoError(s.t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	defer response.Body.Close()
	assert.Equal(s.t, "text/event-stream", response.Header.Get("Content-Type"))
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var u struct {
			Listing listing
			Lock    *detail
			Error   string
		}
		require.NoError(s.t, json.Unmarshal([]byte(data), &u))
		require.Empty(s.t, u.Error)
		if fits(u.Listing, u.Lock) {
			return
		}
	}
	s.t.Fatalf("no update fits: %v", lines.Err())
}

func TestLivePageSeesChanges(t *testing.T) {
	s := start(t, &ui.Options{Every: 100 * time.Millisecond})
	var hold *dlock.Hold
	looks := 0
	s.live("?key="+"bGl2ZQ", func(l listing, d *detail) bool {
		if looks++; looks == 1 {
			assert.Empty(t, l.Locks)
			hold = s.hold("live")
			return false
		}
		return len(l.Locks) == 1 && len(d.Holders) == 1
	})
	s.live("", func(l listing, _ *detail) bool {
		if len(l.Locks) == 1 {
			hold.Unlock()
			return false
		}
		return len(l.Locks) == 0
	})
}

// tryBreak posts a request to break and returns the status.
func (s *site) tryBreak(d detail, header map[string]string) int {
	s.t.Helper()
	body, err := json.Marshal(map[string]string{"key": d.Key, "state": d.State})
	require.NoError(s.t, err)
	request, err := http.NewRequest("POST", s.URL+"/ops/locks/api/break", strings.NewReader(string(body)))
	require.NoError(s.t, err)
	request.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	response.Body.Close()
	return response.StatusCode
}

func TestBreakNeedsTokenOriginAndTheSameHolders(t *testing.T) {
	s := start(t, &ui.Options{Token: token})
	hold := s.hold("a")
	host, err := url.Parse(s.URL)
	require.NoError(t, err)
	var d detail
	s.get("api/lock?key=YQ", &d)
	bearer := "Bearer " + token

	for _, c := range []struct {
		why    string
		header map[string]string
		want   int
	}{
		{"no token", nil, http.StatusUnauthorized},
		{"another token", map[string]string{"Authorization": bearer + "x"}, http.StatusUnauthorized},
		{"no bearer", map[string]string{"Authorization": token}, http.StatusUnauthorized},
		{"another site", map[string]string{"Authorization": bearer, "Origin": "http://evil.example"}, http.StatusForbidden},
		{"another site by its fetch", map[string]string{"Authorization": bearer, "Sec-Fetch-Site": "cross-site", "Origin": s.URL}, http.StatusForbidden},
		{"a sandbox", map[string]string{"Authorization": bearer, "Origin": "null"}, http.StatusForbidden},
		{"a form", map[string]string{"Authorization": bearer, "Content-Type": "text/plain"}, http.StatusUnsupportedMediaType},
	} {
		assert.Equal(t, c.want, s.tryBreak(d, c.header), c.why)
		require.NoError(t, hold.Err(), c.why)
	}
	var l listing
	require.Equal(t, http.StatusOK, s.get("api/locks", &l))
	require.Equal(t, 1, l.Locks[0].Holders, "a refused request has broken the lock")
	assert.Equal(t, http.StatusMethodNotAllowed, s.get("api/break", nil))

	// The holder that the operator saw is not the holder any more.
	require.NoError(t, hold.Unlock())
	second := s.hold("a")
	assert.Equal(t, http.StatusConflict, s.tryBreak(d, map[string]string{"Authorization": bearer}))
	require.NoError(t, second.Err())

	s.get("api/lock?key=YQ", &d)
	ok := map[string]string{"Authorization": bearer, "Origin": "http://" + host.Host, "Sec-Fetch-Site": "same-origin"}
	assert.Equal(t, http.StatusOK, s.tryBreak(d, ok))
	s.get("api/lock?key=YQ", &d)
	assert.Empty(t, d.Holders)
}

func TestBreakWithoutATokenIsRefused(t *testing.T) {
	s := start(t, nil)
	s.hold("a")
	var d detail
	s.get("api/lock?key=YQ", &d)
	assert.Equal(t, http.StatusForbidden, s.tryBreak(d, map[string]string{"Authorization": "Bearer "}))
	s.get("api/lock?key=YQ", &d)
	assert.Len(t, d.Holders, 1)
}

func TestOptionsAreChecked(t *testing.T) {
	client, err := dlock.New(memory.New(), nil)
	require.NoError(t, err)
	defer client.Close()
	for _, o := range []*ui.Options{{Token: "short"}, {Token: "sixteen and ü too"}, {Token: "a line that\nends early"}, {Token: " sixteen and a space"}, {Every: time.Millisecond}, {Every: -1}} {
		_, err := ui.New(client, o)
		assert.Error(t, err)
	}
	_, err = ui.New(nil, nil)
	assert.Error(t, err)
}

// slowStore is a client whose store fails late.
type slowStore struct{ *dlock.Client }

func (slowStore) List(context.Context) ([]string, error) {
	time.Sleep(500 * time.Millisecond)
	return nil, errors.New("no answer")
}

// TestPagesShareAnOutage: the store does not answer one page, and the others hear of it at once.
func TestPagesShareAnOutage(t *testing.T) {
	page, err := ui.New(slowStore{}, nil)
	require.NoError(t, err)
	server := httptest.NewServer(page)
	defer server.Close()
	began := time.Now()
	var pages sync.WaitGroup
	for range 20 {
		pages.Go(func() {
			response, err := http.Get(server.URL + "/api/locks")
			if assert.NoError(t, err) {
				assert.Equal(t, http.StatusBadGateway, response.StatusCode)
				response.Body.Close()
			}
		})
	}
	pages.Wait()
	assert.Less(t, time.Since(began), 5*time.Second, "one after the other takes ten")
}

// leaves is a client whose first request ends during the call of the store.
type leaves struct {
	*dlock.Client
	leave func()
}

func (l *leaves) List(ctx context.Context) ([]string, error) {
	if l.leave != nil {
		l.leave()
		l.leave = nil
		<-ctx.Done()
	}
	return nil, ctx.Err()
}

// TestPageThatIsClosedIsNoOutage: the next page asks the store again.
func TestPageThatIsClosedIsNoOutage(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	page, err := ui.New(&leaves{leave: cancel}, nil)
	require.NoError(t, err)
	page.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/api/locks", nil))
	answer := httptest.NewRecorder()
	page.ServeHTTP(answer, httptest.NewRequest("GET", "/api/locks", nil))
	assert.Equal(t, http.StatusOK, answer.Code)
}

func TestErrorsOfTheStoreAreShown(t *testing.T) {
	s := start(t, nil)
	require.NoError(t, s.client.Close())
	var answer struct{ Error string }
	assert.Equal(t, http.StatusServiceUnavailable, s.get("api/locks", &answer))
	assert.NotEmpty(t, answer.Error)
}
