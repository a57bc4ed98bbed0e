package cli

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// fakeLease is a lease that the test moves.
type fakeLease struct {
	mu       sync.Mutex
	deadline time.Time
	err      error
	done     chan struct{}
}

func (l *fakeLease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return time.Time{}
	}
	return l.deadline
}

func (l *fakeLease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *fakeLease) Done() <-chan struct{} { return l.done }

func (l *fakeLease) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = time.Now().Add(30 * time.Second)
}

func (l *fakeLease) lose(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	close(l.done)
}

// fakeProcess notes when it was signalled. It ends by SIGKILL, and by SIGTERM if it obeys.
type fakeProcess struct {
	obeys              bool
	terminated, killed time.Time
	until              time.Time // when the guard kills it
	passed             []os.Signal
	done               chan struct{}
}

func (p *fakeProcess) end() {
	select {
	case <-p.done:
	default:
		close(p.done)
	}
}
func (p *fakeProcess) terminate() {
	p.terminated = time.Now()
	if p.obeys {
		p.end()
	}
}
func (p *fakeProcess) kill()                  { p.killed = time.Now(); p.end() }
func (p *fakeProcess) mayRun(until time.Time) { p.until = until }
func (p *fakeProcess) pass(s os.Signal)       { p.passed = append(p.passed, s) }
func (p *fakeProcess) ended() <-chan struct{} { return p.done }

// supervised runs supervise in a bubble, with a first lease of 30 s, or another, that nothing renews but the test.
func supervised(t *testing.T, obeys bool, during func(l *fakeLease, p *fakeProcess, s *signals), after func(began time.Time, p *fakeProcess, lost error), first ...time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &fakeLease{deadline: began.Add(30 * time.Second), done: make(chan struct{})}
		for _, d := range first {
			l.deadline = began.Add(d)
		}
		p := &fakeProcess{obeys: obeys, done: make(chan struct{})}
		s := &signals{ending: make(chan os.Signal, 1), other: make(chan os.Signal, 1)}
		go during(l, p, s)
		lost := supervise(l, p, s, 5*time.Second, 500*time.Millisecond)
		synctest.Wait()
		after(began, p, lost)
	})
}

func TestCommandIsEndedBeforeTheLease(t *testing.T) {
	nothing := func(*fakeLease, *fakeProcess, *signals) {}
	supervised(t, true, nothing, func(began time.Time, p *fakeProcess, lost error) {
		assert.ErrorIs(t, lost, errEnding)
		assert.Equal(t, 25*time.Second, p.terminated.Sub(began))
		assert.Zero(t, p.killed)
	})
	supervised(t, false, nothing, func(began time.Time, p *fakeProcess, lost error) {
		assert.ErrorIs(t, lost, errEnding)
		assert.Equal(t, 25*time.Second, p.terminated.Sub(began))
		assert.Equal(t, 29500*time.Millisecond, p.killed.Sub(began), "not killed before the end of the lease")
		assert.Equal(t, p.killed, p.until)
	})
}

func TestRenewedLeaseLetsTheCommandRun(t *testing.T) {
	supervised(t, true, func(l *fakeLease, p *fakeProcess, _ *signals) {
		for range 10 {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			assert.GreaterOrEqual(t, time.Until(p.until), 15*time.Second, "the guard hears of a renewal late")
			l.renew()
		}
		p.end()
	}, func(began time.Time, p *fakeProcess, lost error) {
		assert.NoError(t, lost)
		assert.Equal(t, 100*time.Second, time.Since(began))
		assert.Zero(t, p.terminated)
		assert.Zero(t, p.killed)
	})
}

func TestLostHoldKillsAtOnce(t *testing.T) {
	gone := errors.New("the store says that the hold is gone")
	supervised(t, false, func(l *fakeLease, p *fakeProcess, _ *signals) {
		time.Sleep(3 * time.Second)
		l.lose(gone)
	}, func(began time.Time, p *fakeProcess, lost error) {
		assert.ErrorIs(t, lost, gone)
		assert.Zero(t, p.terminated)
		assert.Equal(t, 3*time.Second, p.killed.Sub(began))
	})
}

func TestLossDuringTheGraceKillsAtOnce(t *testing.T) {
	supervised(t, false, func(l *fakeLease, p *fakeProcess, _ *signals) {
		time.Sleep(26 * time.Second)
		l.lose(errors.New("gone"))
	}, func(began time.Time, p *fakeProcess, lost error) {
		assert.ErrorIs(t, lost, errEnding)
		assert.Equal(t, 26*time.Second, p.killed.Sub(began))
	})
}

func TestSignalsPassToTheCommand(t *testing.T) {
	supervised(t, true, func(l *fakeLease, p *fakeProcess, s *signals) {
		s.ending <- syscall.SIGTERM
		synctest.Wait()
		s.other <- os.Interrupt
		synctest.Wait()
		p.end()
	}, func(_ time.Time, p *fakeProcess, lost error) {
		assert.NoError(t, lost)
		assert.Equal(t, []os.Signal{syscall.SIGTERM, os.Interrupt}, p.passed)
	})
}

// The store grants a waiter a short lease at first. The command is not ended before the first
// renewal is due, and it is ended if that does not come.
func TestShortFirstLease(t *testing.T) {
	for _, renewed := range []bool{true, false} {
		supervised(t, false, func(l *fakeLease, p *fakeProcess, _ *signals) {
			if renewed {
				time.Sleep(time.Second)
				l.renew()
				time.Sleep(20 * time.Second)
				p.end()
			}
		}, func(began time.Time, p *fakeProcess, lost error) {
			if renewed {
				assert.NoError(t, lost)
				return
			}
			assert.Equal(t, 2*time.Second, p.terminated.Sub(began))
			assert.Greater(t, p.killed.Sub(began), 2*time.Second)
			assert.Less(t, p.killed.Sub(began), 3*time.Second)
		}, 3*time.Second)
	}
}
