package real

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock/internal/process"
)

// Faults of the processes that use locks.
var workerFaults = []kind{
	{name: "worker paused", slow: true, aside: true, make: func(h *history) trouble {
		var c *child
		return trouble{
			lasts: h.plan.TTL + h.between(100*time.Millisecond, time.Second),
			begin: func() { c = h.holder(); h.must(c.pause()) },
			end:   func() { h.must(c.resume()) },
			// Its hold had run out, and it found that out, or the register did.
			bit: func(s span) bool {
				return h.saw(s, func(r record) bool {
					return r.Worker == c.job.Worker && r.Call.since(s.To) < h.plan.TTL &&
						(r.Op == opEnd && r.Outcome == lost || r.Outcome == refused && (r.Op == opRead || r.Op == opWrite))
				})
			},
		}
	}},
	{name: "worker killed", slow: true, aside: true, make: func(h *history) trouble {
		var claims int
		return trouble{
			lasts: h.between(100*time.Millisecond, h.plan.TTL),
			begin: func() {
				c := h.holder()
				c.kill()
				claims = h.open(c)
			},
			end: h.hire,
			bit: func(span) bool { return claims > 0 },
		}
	}},
	// The worker and those who compete with it get what others leave, so that the
	// histories beside this one are not starved too.
	{name: "worker starved", slow: true, aside: true, make: func(h *history) trouble {
		var c *child
		var rival *process.Process
		return trouble{
			lasts: h.between(h.plan.TTL, 2*h.plan.TTL),
			begin: func() {
				c = h.holder()
				h.must(yield(c.proc.Cmd.Process.Pid))
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), spinEnv+"=1")
				var err error
				rival, err = process.Start(cmd)
				h.must(err)
				h.t.Cleanup(rival.Kill)
			},
			end: func() { rival.Kill() },
			bit: func(s span) bool {
				return h.saw(s, func(r record) bool {
					return r.Worker == c.job.Worker && r.Op == opStall && r.Return.since(r.Call) > margin(h.plan.TTL)
				})
			},
		}
	}},
}

const (
	spinEnv   = "DLOCK_REAL_SPIN"
	leastNice = 19
)

// yield gives the process the least priority, thread by thread: on Linux each
// has its own.
func yield(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, thread := range threads {
		id, _ := strconv.Atoi(filepath.Base(thread))
		if failed := unix.Setpriority(unix.PRIO_PROCESS, id, leastNice); failed != nil && failed != unix.ESRCH {
			err = failed
		}
	}
	return err
}

// beRival keeps the machine busy, if this process is there for that, at the
// least priority.
func beRival() {
	if os.Getenv(spinEnv) == "" {
		return
	}
	n := 4 * runtime.NumCPU()
	runtime.GOMAXPROCS(n + 1)
	for range n {
		go func() {
			runtime.LockOSThread()
			unix.Setpriority(unix.PRIO_PROCESS, 0, leastNice)
			for n := 0; ; n++ { // not an empty loop, which linters take for a mistake
			}
		}()
	}
	select {}
}
