package memory

import (
	"crypto/rand"
	"hash/maphash"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/store/model"
)

// locks are what all handles share. Names are spread over shards, so that
// distinct names rarely contend.
type locks struct {
	seed        maphash.Seed
	start       time.Time // the moment that the clock of the records counts from: before the first call, as 0 is no moment of a record
	incarnation string
	tokens      counter
	lastHandle  atomic.Uint64
	handles     sync.Map // string -> *Store: those with sinks
	shards      [64]shard
}

// shard is the records of some names.
type shard struct {
	mu      sync.Mutex
	records map[string]*model.Record // a record that is empty is not kept
	free    []*model.Record          // used again for the next names
	_       [64]byte                 // keeps two shards out of one cache line
}

// maxFree bounds the records that a shard keeps for reuse.
const maxFree = 16

func newLocks() *locks {
	l := &locks{seed: maphash.MakeSeed(), start: time.Now().Add(-time.Nanosecond), incarnation: rand.Text()}
	for i := range l.shards {
		l.shards[i].records = make(map[string]*model.Record)
	}
	return l
}

func (l *locks) handle() *Store {
	return &Store{locks: l, id: strconv.FormatUint(l.lastHandle.Add(1), 36)}
}

// now is the present. It does not run backwards when the machine's clock is set.
func (l *locks) now() time.Duration { return time.Since(l.start) }

// begin locks the shard of a name and returns it with a new call. The present
// is read under the shard's lock: a call that had to wait must not see expired
// entries as live.
func (l *locks) begin(name string) (*shard, model.Call) {
	sh := &l.shards[maphash.String(l.seed, name)%uint64(len(l.shards))]
	sh.mu.Lock()
	return sh, model.Call{Now: l.now(), Tokens: &l.tokens}
}

// end drops the record of a name if it is empty, unlocks the shard and then
// delivers the events of the call. A sink may therefore call the store.
func (l *locks) end(sh *shard, name string, c *model.Call) {
	if r := sh.records[name]; r != nil && r.Empty() {
		sh.drop(name, r)
	}
	sh.mu.Unlock()
	for _, e := range c.Events {
		if s, ok := l.handles.Load(e.Handle); ok {
			s.(*Store).sinks.Tell(e.Event)
		}
	}
}

// record returns the record of a name, a new one if there is none.
func (sh *shard) record(name string, now time.Duration) *model.Record {
	r := sh.records[name]
	if r != nil {
		return r
	}
	if len(sh.records) > 0 {
		sh.sweep(now)
	}
	if n := len(sh.free); n > 0 {
		r = sh.free[n-1]
		sh.free = sh.free[:n-1]
	} else {
		r = new(model.Record)
	}
	sh.records[name] = r
	return r
}

// drop deletes a record and keeps its memory for the next names.
func (sh *shard) drop(name string, r *model.Record) {
	delete(sh.records, name)
	if len(sh.free) < maxFree && r.Small() {
		r.Reset()
		sh.free = append(sh.free, r)
	}
}

// sweep looks at two records, which the map picks at random, and drops those in
// which nothing is alive. It runs for each name that is added, which bounds the
// expired records by a multiple of those in use. The alternative, a goroutine
// or an index by deadline, costs more than it saves.
func (sh *shard) sweep(now time.Duration) {
	looked := 0
	for name, r := range sh.records {
		if r.Expires() <= now {
			sh.drop(name, r)
		}
		if looked++; looked == 2 {
			return
		}
	}
}

// inUse appends the names with live holds or waiters.
func (sh *shard) inUse(names []string, now time.Duration) []string {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for name, r := range sh.records {
		if r.InUse(now) {
			names = append(names, name)
		}
	}
	return names
}

// counter issues the tokens of all names: a [model.Raiser] without a lock.
type counter struct{ last atomic.Uint64 }

// Issue implements [model.Counter].
func (k *counter) Issue(n int) (first uint64, reserved int) {
	return k.last.Add(uint64(n)) - uint64(n) + 1, n
}

// Last implements [model.Counter].
func (k *counter) Last() uint64 { return k.last.Load() }

// Reserve implements [model.Raiser].
func (k *counter) Reserve(first uint64, n int) {
	last := first + uint64(n) - 1
	for {
		issued := k.last.Load()
		if issued >= last || k.last.CompareAndSwap(issued, last) {
			return
		}
	}
}

// Take implements [model.Raiser].
func (k *counter) Take(first uint64, n int) bool {
	for {
		issued := k.last.Load()
		if issued >= first {
			return false
		}
		if k.last.CompareAndSwap(issued, first+uint64(n)-1) {
			return true
		}
	}
}
