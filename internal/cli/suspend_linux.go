package cli

import (
	"os"
	"os/signal"
	"syscall"
	"unsafe"
)

// keepRunning lets the command go on after Ctrl-Z. The shell does not see that the command
// has stopped, since dlock goes on to renew, and would wait for ever.
func (t *terminal) keepRunning(pid, group int) {
	if t == nil {
		return
	}
	news, done := make(chan os.Signal, 1), make(chan struct{})
	news <- syscall.SIGCHLD // the command may have stopped before Notify
	signal.Notify(news, syscall.SIGCHLD)
	t.stop = func() { signal.Stop(news); close(done) }
	go func() {
		for {
			select {
			case <-news:
				if stopped(pid) {
					syscall.Kill(-group, syscall.SIGCONT)
				}
			case <-done:
				return
			}
		}
	}()
}

// stopped reports whether a child of this process is stopped. It leaves the child to be
// waited for.
func stopped(pid int) bool {
	const byPid, stopped, noHang = 1, 2, 1
	var info [128]byte // siginfo_t; its first field is the number of the signal, 0 for none
	_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, byPid, uintptr(pid), uintptr(unsafe.Pointer(&info)), stopped|noHang, 0, 0)
	return errno == 0 && (info[0]|info[1]|info[2]|info[3]) != 0
}
