package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
)

// profiles are what a worker was busy with while it counted: its processor time,
// what it allocated, and which mutexes it waited for, in files that begin with base.
// To record them makes it slower, so what is measured beside them is no figure.
type profiles struct {
	base  string
	cpu   *os.File
	begin sync.Once
	end   sync.Once
}

// The parts of allocations (bytes between two) and of waits for mutexes (one in so
// many) that are recorded.
const (
	allocated = 16 << 10
	contended = 10
)

// start begins to record, the first time.
func (p *profiles) start() error {
	if p.base == "" {
		return nil
	}
	var err error
	p.begin.Do(func() {
		runtime.MemProfileRate = allocated
		runtime.SetMutexProfileFraction(contended)
		if p.cpu, err = os.Create(p.base + ".cpu.pprof"); err == nil {
			err = pprof.StartCPUProfile(p.cpu)
		}
	})
	return err
}

// stop writes what was recorded, the first time after start.
func (p *profiles) stop() error {
	if p.cpu == nil {
		return nil
	}
	var err error
	p.end.Do(func() {
		pprof.StopCPUProfile()
		err = p.cpu.Close()
		for _, what := range []string{"allocs", "mutex"} {
			if e := p.write(what); err == nil {
				err = e
			}
		}
	})
	return err
}

func (p *profiles) write(what string) error {
	f, err := os.Create(fmt.Sprintf("%s.%s.pprof", p.base, what))
	if err != nil {
		return err
	}
	defer f.Close()
	return pprof.Lookup(what).WriteTo(f, 0)
}
