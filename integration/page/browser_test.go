// Package page tests the page of package ui in headless Chromium, and makes the pictures of
// docs/images:
//
//	make pictures
package page

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/process"
)

// long bounds what takes a moment, on a machine that is busy.
const long = 30 * time.Second

// browser is a headless Chromium that is driven over a pipe with the DevTools protocol.
type browser struct {
	t  testing.TB
	in io.Writer

	mu      sync.Mutex
	last    int
	waiting map[int]chan reply
	errors  []string // what pages have reported: exceptions, and requests that the policy refused
}

// reply is a message of the browser: an answer if it has an ID, and otherwise an event.
type reply struct {
	ID     int
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct{ Message string }
}

// openBrowser starts Chromium. It fails the test if there is none.
func openBrowser(t testing.TB) *browser {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Fatal("Chromium is not installed: run `apt-get install chromium`, or `make test`, which does.")
	}
	theirIn, in, err := os.Pipe()
	noError(t, err)
	out, theirOut, err := os.Pipe()
	noError(t, err)
	// Not t.TempDir, which fails the test if helper processes still write when it is removed.
	profile, err := os.MkdirTemp("", "dlock-page-")
	noError(t, err)
	t.Cleanup(func() { os.RemoveAll(profile) })
	cmd := exec.Command(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--no-first-run", "--disable-background-networking", "--remote-debugging-pipe", "--user-data-dir="+profile, "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4, as the protocol wants
	// A file: with a buffer, the end of the last helper process would be waited for.
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	noError(t, err)
	cmd.Stderr = log
	p, err := process.Start(cmd)
	noError(t, err)
	theirIn.Close()
	theirOut.Close()
	b := &browser{t: t, in: in, waiting: make(map[int]chan reply)}
	read := make(chan struct{})
	go func() { defer close(read); b.read(out) }()
	t.Cleanup(func() {
		// It ends in order, so that it writes no more into the folder that is removed.
		fmt.Fprintf(in, `{"id":0,"method":"Browser.close"}`+"\x00")
		select {
		case <-p.Done:
		case <-time.After(long):
			p.Kill()
		}
		in.Close()
		out.Close()
		<-read
		log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("Chromium says: %s", text)
		}
	})
	return b
}

func (b *browser) read(out io.Reader) {
	messages := bufio.NewReaderSize(out, 1<<20)
	for {
		text, err := messages.ReadBytes(0)
		if err != nil {
			return
		}
		var r reply
		if json.Unmarshal(text[:len(text)-1], &r) != nil {
			continue
		}
		b.mu.Lock()
		switch {
		case b.waiting[r.ID] != nil:
			b.waiting[r.ID] <- r
			delete(b.waiting, r.ID)
		case r.Method == "Runtime.exceptionThrown", r.Method == "Log.entryAdded" && strings.Contains(string(r.Params), "Content Security"):
			b.errors = append(b.errors, string(r.Params))
		}
		b.mu.Unlock()
	}
}

// call sends a command, to a tab if session is not empty, and decodes its result.
func (b *browser) call(session, method string, params, into any) {
	b.t.Helper()
	answer := make(chan reply, 1)
	b.mu.Lock()
	b.last++
	id := b.last
	b.waiting[id] = answer
	b.mu.Unlock()
	message := map[string]any{"id": id, "method": method, "params": params}
	if session != "" {
		message["sessionId"] = session
	}
	text, err := json.Marshal(message)
	noError(b.t, err)
	_, err = b.in.Write(append(text, 0))
	noError(b.t, err)
	select {
	case r := <-answer:
		if r.Error != nil {
			b.t.Fatalf("%s: %s", method, r.Error.Message)
		}
		if into != nil {
			noError(b.t, json.Unmarshal(r.Result, into))
		}
	case <-time.After(long):
		b.t.Fatalf("the browser does not answer %s", method)
	}
}

type object = map[string]any

// tab is one page of the browser.
type tab struct {
	b       *browser
	session string
}

// open opens a URL in a tab of this width, in this color scheme.
func (b *browser) open(url string, width, height int, scheme string) *tab {
	b.t.Helper()
	var target struct{ TargetID string }
	b.call("", "Target.createTarget", object{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.call("", "Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &session)
	tab := &tab{b, session.SessionID}
	tab.call("Page.enable", object{}, nil)
	tab.call("Runtime.enable", object{}, nil)
	tab.call("Log.enable", object{}, nil)
	tab.call("Emulation.setDeviceMetricsOverride", object{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	tab.call("Emulation.setEmulatedMedia", object{"features": []object{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	tab.call("Page.navigate", object{"url": url}, nil)
	tab.await(`document.readyState === "complete" && document.getElementById("state").dataset.state === "live"`)
	b.t.Cleanup(func() { b.call("", "Target.closeTarget", object{"targetId": target.TargetID}, nil) })
	return tab
}

func (t *tab) call(method string, params, into any) {
	t.b.t.Helper()
	t.b.call(t.session, method, params, into)
}

// eval evaluates an expression of JavaScript.
func (t *tab) eval(expression string) any {
	t.b.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Text string }
	}
	t.call("Runtime.evaluate", object{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.ExceptionDetails != nil {
		t.b.t.Fatalf("%s: %s", expression, r.ExceptionDetails.Text)
	}
	return r.Result.Value
}

// await waits until an expression is true and returns how long that took.
func (t *tab) await(expression string) time.Duration {
	t.b.t.Helper()
	began := time.Now()
	for t.eval(expression) != true {
		if time.Since(began) > long {
			t.b.t.Fatalf("it does not become true: %s\nthe page: %v", expression, t.eval(`document.body.innerText`))
		}
	}
	return time.Since(began)
}

// press presses a key.
func (t *tab) press(key string) {
	t.b.t.Helper()
	code := map[string]int{"Enter": 13, "Escape": 27, "Tab": 9, "/": 191}[key]
	text := map[string]string{"Enter": "\r", "/": "/"}[key]
	down := object{"type": "keyDown", "key": key, "windowsVirtualKeyCode": code}
	if text != "" {
		down["text"] = text
	}
	t.call("Input.dispatchKeyEvent", down, nil)
	t.call("Input.dispatchKeyEvent", object{"type": "keyUp", "key": key, "windowsVirtualKeyCode": code}, nil)
}

// write types a text into the element that has the focus.
func (t *tab) write(text string) {
	t.b.t.Helper()
	t.call("Input.insertText", object{"text": text}, nil)
}

// picture returns what the tab shows, as PNG.
func (t *tab) picture() []byte {
	t.b.t.Helper()
	var r struct{ Data string }
	t.call("Page.captureScreenshot", object{"format": "png"}, &r)
	png, err := base64.StdEncoding.DecodeString(r.Data)
	noError(t.b.t, err)
	return png
}

// clean fails the test if a page has reported an error.
func (b *browser) clean() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.errors) > 0 {
		b.t.Fatalf("the page has reported: %q", b.errors)
	}
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal(t testing.TB, want, got any, why ...string) {
	t.Helper()
	if want != got {
		t.Fatalf("got %v, want %v %q", got, want, why)
	}
}
