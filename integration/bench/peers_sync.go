package main

import (
	"sync"
	"time"
)

// syncClient is package sync: one process, no leases. Goroutines either all use
// the Mutex of a name or all its RWMutex.
type syncClient struct{ locks map[string]*syncLock }

type syncLock struct {
	sync.Mutex
	rw sync.RWMutex
}

func openSync(string, time.Duration) (client, error) {
	return &syncClient{map[string]*syncLock{}}, nil
}

func (c *syncClient) locker(name string, u use) (locker, error) {
	if c.locks[name] == nil {
		c.locks[name] = &syncLock{}
	}
	if u.reads {
		return &syncReader{l: &c.locks[name].rw}, nil
	}
	return &syncLocker{c.locks[name]}, nil
}

type syncLocker struct{ l *syncLock }

func (l *syncLocker) lock(bool) error { l.l.Lock(); return nil }
func (l *syncLocker) unlock() error   { l.l.Unlock(); return nil }

// syncReader is a locker of the RWMutex.
type syncReader struct {
	l      *sync.RWMutex
	shared bool
}

func (l *syncReader) lock(shared bool) error {
	if l.shared = shared; shared {
		l.l.RLock()
	} else {
		l.l.Lock()
	}
	return nil
}

func (l *syncReader) unlock() error {
	if l.shared {
		l.l.RUnlock()
	} else {
		l.l.Unlock()
	}
	return nil
}
