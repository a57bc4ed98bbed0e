package real

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// rig is the test of one history, for what starts and drives its servers. What fails
// there says nothing of the library: the machine may stand still, or a server does not
// start. It ends the history, which is not judged then, and not the test.
type rig struct {
	testing.TB
	mu     sync.Mutex
	failed string // why, or ""
}

// run calls f and returns why the rig failed, or "".
func (r *rig) run(f func()) (failed string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *rig) fail(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == "" {
		r.failed = "the rig: " + text
		r.TB.Log(r.failed)
	}
}

func (r *rig) Error(args ...any)                 { r.fail(fmt.Sprint(args...)) }
func (r *rig) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }

func (r *rig) Fatal(args ...any) {
	r.fail(fmt.Sprint(args...))
	runtime.Goexit()
}

func (r *rig) Fatalf(format string, args ...any) {
	r.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

func (r *rig) FailNow() { runtime.Goexit() }

// A server that does not start ends a history, and makes none wrong.
func TestRigThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		f    func(*rig)
		want string
	}{
		"fatal":   {func(r *rig) { r.Fatalf("no %s", "server"); t.Error("it goes on") }, "the rig: no server"},
		"error":   {func(r *rig) { r.Error("slow"); r.Error("again") }, "the rig: slow"},
		"nothing": {func(*rig) {}, ""},
	} {
		r := &rig{TB: t}
		if got := r.run(func() { c.f(r) }); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
