package page

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/dlock-go/dlock/ui"
)

var writeTo = flag.String("page.write", "", "write the pictures into this `directory`")

const token = "the token of this test"

// site is the page of some clients on one memory store.
type site struct {
	t     *testing.T
	store *memory.Store
	url   string
}

// start serves the page, behind the handlers that are given.
func start(t *testing.T, o *ui.Options, before ...func(http.Handler) http.Handler) *site {
	t.Helper()
	s := &site{t: t, store: memory.New()}
	page, err := ui.New(s.client("dlock ui"), o)
	noError(t, err)
	for _, wrap := range before {
		page = wrap(page)
	}
	server := httptest.NewServer(page)
	s.url = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections() // the live pages end only with their requests
		server.Close()
	})
	return s
}

func (s *site) client(label string) *dlock.Client {
	s.t.Helper()
	c, err := dlock.New(s.store, &dlock.Options{Label: label})
	noError(s.t, err)
	s.t.Cleanup(func() { c.Close() })
	return c
}

func (s *site) hold(label, name string) *dlock.Hold {
	s.t.Helper()
	return locktest.Lock(s.t, s.client(label), name)
}

// read holds the reader's lock.
func (s *site) read(label, name string) {
	s.t.Helper()
	_, err := s.client(label).RWMutex(name).RLockContext(s.t.Context())
	noError(s.t, err)
}

// wait waits for a lock until the test ends, with a client of its own.
func (s *site) wait(label, name string, queued int) {
	s.t.Helper()
	c := s.client(label)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	s.t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		if hold, err := c.Mutex(name).LockContext(ctx); err == nil {
			<-ctx.Done()
			hold.Unlock()
		}
	}()
	locktest.Queued(s.t, s.store, name, queued)
}

// populate takes some locks that look like those of a service.
func (s *site) populate() {
	s.hold("web-1/4121", "deploy/web")
	s.hold("worker-3/88", "invoice/2026-11")
	for i, label := range []string{"worker-1/71", "worker-2/90", "worker-4/12", "report-1/5"} {
		s.wait(label, "invoice/2026-11", i+1)
	}
	s.read("search-1/310", "index/products")
	s.read("search-2/311", "index/products")
	s.wait("indexer-1/40", "index/products", 1)
	for i := range 7 {
		s.hold(fmt.Sprintf("web-%d/4%03d", i%3+1, 121+i), fmt.Sprintf("order/%d", 47110+i))
	}
}

const rowOf = `[...document.querySelectorAll("#locks tbody tr")].find((row) => row.querySelector("button").textContent === %q)`

// named is an expression for the row of a lock.
func named(name string) string { return fmt.Sprintf(rowOf, name) }

// The page fits and reads well on a phone and on a screen, in light and in dark.
func TestPageFits(t *testing.T) {
	s := start(t, &ui.Options{Token: token, Every: 100 * time.Millisecond})
	s.populate()
	b := openBrowser(t)
	for _, size := range []struct{ width, height int }{{390, 844}, {1440, 900}} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(fmt.Sprintf("%d-%s", size.width, scheme), func(t *testing.T) {
				tab := b.open(s.url, size.width, size.height, scheme)
				tab.await(`document.querySelectorAll("#locks tbody tr").length === 10`)
				fits := func() {
					equal(t, true, tab.eval(`document.documentElement.scrollWidth <= innerWidth`), "it scrolls sideways")
				}
				fits()
				dark := tab.eval(`getComputedStyle(document.body).backgroundColor.match(/\d+/g).reduce((sum, n) => sum + +n, 0) < 384`)
				equal(t, scheme == "dark", dark)
				keep(t, tab, fmt.Sprintf("ui-%d-%s.png", size.width, scheme), size.width, size.height)

				tab.eval(named("invoice/2026-11") + `.querySelector("button").click()`)
				tab.await(`document.querySelectorAll("#picture svg rect").length === 5`)
				fits()
				box := `document.getElementById("detail").getBoundingClientRect()`
				equal(t, true, tab.eval(box+`.left >= 0 && `+box+`.right <= innerWidth`))
				keep(t, tab, fmt.Sprintf("ui-lock-%d-%s.png", size.width, scheme), size.width, size.height)
			})
		}
	}
	b.clean()
}

// keep checks a picture, and writes it if the flag says so.
func keep(t *testing.T, tab *tab, name string, width, height int) {
	t.Helper()
	picture := tab.picture()
	image, err := png.DecodeConfig(bytes.NewReader(picture))
	noError(t, err)
	equal(t, [2]int{width, height}, [2]int{image.Width, image.Height})
	if *writeTo != "" {
		noError(t, os.WriteFile(filepath.Join(*writeTo, name), picture, 0o644))
	}
}

// A change of the locks is on the page within a second. The best of five counts, because the
// machine may be busy.
func TestPageIsLive(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t)
	tab := b.open(s.url, 1440, 900, "light")
	tab.await(`document.getElementById("none").hidden === false`)
	best := long
	for i := range 5 {
		name := fmt.Sprint("live/", i)
		hold := s.hold("web-1/1", name)
		appeared := tab.await(named(name) + ` !== undefined`)
		noError(t, hold.Unlock())
		vanished := tab.await(named(name) + ` === undefined`)
		best = min(best, max(appeared, vanished))
	}
	t.Logf("a change is shown after %v", best)
	if best >= time.Second {
		t.Errorf("a change is shown after %v", best)
	}
	b.clean()
}

// The page shows nothing when a stream ends as planned, and that it is not connected when no
// other stream begins.
func TestPageShowsOnlyAFailureThatLasts(t *testing.T) {
	var streams atomic.Int32
	var down atomic.Bool
	s := start(t, nil, func(page http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if down.Load() {
				panic(http.ErrAbortHandler) // the connection ends without an answer
			}
			if r.URL.Path == "/api/live" {
				streams.Add(1)
				ctx, cancel := context.WithTimeout(r.Context(), 200*time.Millisecond)
				defer cancel()
				r = r.WithContext(ctx)
			}
			page.ServeHTTP(w, r)
		})
	})
	b := openBrowser(t)
	tab := b.open(s.url, 1440, 900, "light")
	tab.eval(`window.states = [];
		new MutationObserver(() => states.push(find("state").dataset.state)).observe(find("state"), { attributes: true })`)
	for began := time.Now(); streams.Load() < 4; {
		if time.Since(began) > long {
			t.Fatalf("the page has opened %d streams only", streams.Load())
		}
		tab.eval(`new Promise((done) => setTimeout(done, 50))`)
	}
	equal(t, false, tab.eval(`states.includes("failed")`), "the page shows that a stream ended as planned")

	down.Store(true)
	tab.await(`states.includes("failed")`)
	equal(t, "not connected, trying again", tab.eval(`find("state").textContent`))
	down.Store(false)
	tab.await(`find("state").dataset.state === "live"`)
	b.clean()
}

// All that operators do can be done with the keyboard.
func TestPageWorksWithTheKeyboard(t *testing.T) {
	s := start(t, nil)
	s.populate()
	b := openBrowser(t)
	tab := b.open(s.url, 1440, 900, "light")
	tab.await(`document.querySelectorAll("#locks tbody tr").length === 10`)
	tab.press("/")
	tab.await(`document.activeElement.id === "text"`)
	tab.write("INVOICE")
	tab.await(`document.querySelectorAll("#locks tbody tr").length === 1`)
	tab.press("Tab")
	tab.await(`document.activeElement.textContent === "invoice/2026-11"`)
	// The focus stays where it is while the page is live.
	tab.eval(`window.before = ` + named("invoice/2026-11") + `.cells[3].textContent`)
	tab.await(named("invoice/2026-11") + `.cells[3].textContent !== window.before`)
	tab.await(`document.activeElement.textContent === "invoice/2026-11"`)
	tab.press("Enter")
	tab.await(`document.getElementById("detail").open`)
	tab.await(`document.getElementById("summary").textContent === "Holders: 1. Waiters: 4."`)
	equal(t, true, tab.eval(`document.getElementById("break").hidden`), "a page without a token shows the button")
	tab.press("Escape")
	tab.await(`!document.getElementById("detail").open`)
	b.clean()
}

// A lock is broken with the token and after the question, and only then.
func TestPageBreaksALockAfterTheQuestion(t *testing.T) {
	s := start(t, &ui.Options{Token: token})
	hold := s.hold("worker-3/88", "invoice")
	b := openBrowser(t)
	tab := b.open(s.url, 1440, 900, "light")
	holders := func() int {
		t.Helper()
		state, err := s.store.Inspect(t.Context(), "invoice")
		noError(t, err)
		return len(state.Holders)
	}
	ask := func() {
		t.Helper()
		tab.await(`!document.getElementById("break").disabled && !document.getElementById("break").hidden`)
		tab.eval(`document.getElementById("break").click()`)
		tab.await(`document.getElementById("question").open`)
	}
	tab.await(named("invoice") + ` !== undefined`)
	tab.eval(named("invoice") + `.querySelector("button").click()`)
	ask()
	equal(t, "keep", tab.eval(`document.activeElement.id`), "Enter alone would break the lock")
	equal(t, true, tab.eval(`document.getElementById("consequence").textContent.includes("worker-3/88")`), "the question names the holder")
	tab.press("Enter")
	tab.await(`!document.getElementById("question").open`)
	equal(t, 1, holders())

	ask()
	tab.eval(`question.close(); document.getElementById("break").click(); token.value = "typed"`)
	equal(t, "typed", tab.eval(`new Promise((done) => setTimeout(() => done(token.value), 100))`), "the question that was closed cleared the token")
	tab.eval(`token.value = ""; token.focus()`)
	tab.write("a wrong token of the page")
	tab.press("Enter")
	tab.await(`document.getElementById("refused").textContent === "the token is wrong"`)
	equal(t, 1, holders())
	noError(t, hold.Err())

	tab.eval(`document.getElementById("token").value = ""`)
	tab.write(token)
	tab.press("Enter")
	tab.await(`!document.getElementById("question").open`)
	tab.await(`document.getElementById("summary").textContent === "The lock is free."`)
	equal(t, 0, holders())
	equal(t, "", tab.eval(`document.getElementById("token").value`), "the token stays in the page")
	b.clean()
}

func TestPageOfTenThousandLocks(t *testing.T) {
	s := start(t, nil)
	c := s.client("web-1/1")
	for i := range 10_000 {
		locktest.Lock(t, c, fmt.Sprintf("order/%05d", i))
	}
	b := openBrowser(t)
	tab := b.open(s.url, 1440, 900, "light")
	tab.await(`document.getElementById("place").textContent === "10000 locks, page 1 of 400"`)
	tab.eval(`document.getElementById("next").click()`)
	tab.await(named("order/00025") + ` !== undefined`)
	tab.eval(`document.getElementById("text").focus()`)
	tab.write("9999")
	took := tab.await(`document.getElementById("place").textContent === "1 of 10000 locks, page 1 of 1"`)
	t.Logf("a search takes %v", took)
	equal(t, "order/09999", tab.eval(`document.querySelector("#locks tbody button").textContent`))
	b.clean()
}
