package real

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
)

// plan is what the seed of a history says.
type plan struct {
	Deployment string
	Seed       uint64
	Faults     []string
	TTL        time.Duration
	WaitTTL    time.Duration
	Names      []string
	Parties    int // in each worker
	Owners     int // explicit ones, that act in all workers
	Hoard      int // more names that each worker holds all the time
}

// workers are how many processes use locks at a time.
const workers = 3

func draw(rng *rand.Rand, deployment string, seed uint64, faults []kind) plan {
	p := plan{
		Deployment: deployment, Seed: seed, Parties: 1 + rng.IntN(4),
		TTL:     time.Second + time.Duration(rng.IntN(3))*500*time.Millisecond,
		WaitTTL: time.Second,
		Names:   []string{"a", "b", "c"}[:1+rng.IntN(3)],
	}
	switch rng.IntN(6) {
	case 0, 1, 2:
		p.WaitTTL = p.TTL
	case 3:
		p.TTL = 6 * time.Second // to WaitTTL as the defaults, 30 s to 5 s
	}
	switch rng.IntN(8) {
	case 0, 1:
		if deployment != redisQuorum { // there an owner belongs to one client
			p.Owners = 2
		}
	case 2:
		switch { // as many as all can be released in the time that Close has
		case slices.Contains(anyRedis, deployment) && deployment != redisQuorum:
			p.Hoard = 500
		case !slices.Contains(onZookeeper, deployment):
			p.Hoard = 50
		}
	}
	for _, k := range faults {
		p.Faults = append(p.Faults, k.name)
		if k.slow {
			// While it lasts, calls pile up that nobody knows the order of, and each more
			// of them multiplies the orders that have to be tried.
			p.Parties = min(p.Parties, 2)
		}
	}
	return p
}

// history is one run of workers on servers that meet their faults.
type history struct {
	t        testing.TB // the rig's
	plan     plan
	kinds    []kind
	rng      *rand.Rand
	site     *site
	resource *redistest.Server // the register
	owners   []string          // explicit ones
	watch    *observer
	children []*child // in the order of their start
	troubles []trouble
	spans    []span // of the faults

	mu      sync.Mutex
	records []record
	claims  map[int]map[int]bool // by worker: the handles that are held
}

func newHistory(t testing.TB, deployment string, seed uint64, faults []kind, resource *redistest.Server) *history {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	var n needs
	for _, k := range faults {
		n.durable = n.durable || k.needs.durable
		n.clock = n.clock || k.needs.clock
		n.replicas = n.replicas || k.needs.replicas
		n.users = n.users || k.needs.users
	}
	h := &history{
		t: t, plan: draw(rng, deployment, seed, faults), kinds: faults, rng: rng,
		site: newSite(t, deployment, n), resource: resource, claims: map[int]map[int]bool{},
	}
	for range h.plan.Owners {
		h.owners = append(h.owners, dlock.NewOwner().String())
	}
	return h
}

// add is called by the readers of all workers.
func (h *history) add(r record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records = append(h.records, r)
	switch {
	case r.Op == opLock && r.Outcome == held:
		if h.claims[r.Worker] == nil {
			h.claims[r.Worker] = map[int]bool{}
		}
		h.claims[r.Worker][r.Handle] = true
	case r.Op == opEnd:
		delete(h.claims[r.Worker], r.Handle)
	}
}

// open is how many claims a worker has.
func (h *history) open(c *child) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.claims[c.job.Worker])
}

// hire starts one more worker.
func (h *history) hire() {
	h.t.Helper()
	n := len(h.children) + 1
	h.children = append(h.children, startChild(h.t, job{
		Worker: n, Seed: h.plan.Seed, URL: h.site.url(n), Register: h.resource.Addr, Keys: h.keys(),
		Names: h.plan.Names, TTL: h.plan.TTL, WaitTTL: h.plan.WaitTTL, Parties: h.plan.Parties,
		Owners: h.owners, Hoard: h.plan.Hoard,
	}, h.add))
}

// keys is what the keys of this history begin with in the register, which all
// histories use.
func (h *history) keys() string { return fmt.Sprintf("%s %d ", h.plan.Deployment, h.plan.Seed) }

// run is the whole history, until nothing of it should be left.
func (h *history) run() {
	h.t.Helper()
	h.watch = observe(h.reach(), h.plan.Names, h.add)
	h.t.Cleanup(h.watch.close)
	for range workers {
		h.hire()
	}
	h.warm()
	for _, k := range h.kinds {
		h.troubles = append(h.troubles, k.make(h))
	}
	h.meet()
	h.rest(2500 * time.Millisecond)
	h.watch.close()
}

// reach opens servers that meet no fault yet. A machine that stands still for
// longer than [redis.Open] waits is no reason for a history not to begin.
func (h *history) reach() store.Store {
	h.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		on, err := stores.Open(h.site.direct())
		if err == nil {
			return on
		}
		if time.Now().After(deadline) {
			h.must(err)
		}
	}
}

// warm waits until all workers have had locks.
func (h *history) warm() {
	h.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		busy := map[int]int{}
		h.mu.Lock()
		for _, r := range h.records {
			if r.Op == opLock && r.Outcome == held {
				busy[r.Worker]++
			}
		}
		h.mu.Unlock()
		n := 0
		for _, grants := range busy {
			if grants >= 5 {
				n++
			}
		}
		if n == workers {
			break
		}
		if time.Now().After(deadline) {
			return // such a history is void
		}
	}
	h.rest(h.between(100*time.Millisecond, 500*time.Millisecond))
}

// meet has the faults happen, all at once.
func (h *history) meet() {
	h.t.Helper()
	h.spans = make([]span, len(h.troubles))
	ended := make([]bool, len(h.troubles))
	if slices.ContainsFunc(h.kinds, func(k kind) bool { return k.slow }) {
		// One that is hired meanwhile is quick, and need not be told so.
		slow := slices.Clone(h.children)
		tellAll(slow, "slow")
		defer tellAll(slow, "quick")
		h.rest(h.between(50*time.Millisecond, 300*time.Millisecond)) // what was begun before is over
	}
	for i, f := range h.troubles {
		h.spans[i].From = now()
		call(f.begin)
	}
	for left := len(h.troubles); left > 0; h.rest(10 * time.Millisecond) {
		for i, f := range h.troubles {
			if ended[i] {
				continue
			}
			call(f.tick)
			if now().since(h.spans[i].From) < f.lasts {
				continue
			}
			call(f.end)
			h.spans[i].To = now()
			h.add(record{Op: opFault, Call: h.spans[i].From, Return: h.spans[i].To, Outcome: h.kinds[i].name})
			ended[i] = true
			left--
		}
	}
}

func tellAll(children []*child, order string) {
	for _, c := range children {
		c.tell(order)
	}
}

func call(f func()) {
	if f != nil {
		f()
	}
}

func (h *history) rest(d time.Duration) { time.Sleep(d) }

// stop ends the workers in order, and returns what went wrong.
func (h *history) stop() (wrong []string) {
	var mu sync.Mutex
	var stopping sync.WaitGroup
	for _, c := range h.children {
		stopping.Go(func() {
			if err := c.stop(time.Minute); err != nil {
				mu.Lock()
				defer mu.Unlock()
				wrong = append(wrong, err.Error())
			}
		})
	}
	stopping.Wait()
	slices.SortStableFunc(h.records, func(a, b record) int { return int(a.Call - b.Call) })
	return wrong
}

// empty waits until nothing is left at the store, for as long as it may be from when the
// servers answer: one that stands still, for its disk does, carries out only then what the
// workers have sent.
func (h *history) empty() (wrong []string) {
	patience := h.site.grace(h.plan.TTL)
	for _, k := range h.kinds {
		patience += k.lingers
	}
	began := time.Now()
	deadline := began.Add(patience)
	for {
		now := time.Now()
		left, err := h.site.left()
		switch {
		case err == nil && len(left) == 0:
			return nil
		case err == nil && now.After(deadline):
			return []string{fmt.Sprintf("left at the store %v after the last worker: %q", patience, left)}
		case err != nil && now.Sub(began) > answers:
			h.t.Fatalf("the servers do not say what is left: %v", err)
		case err != nil:
			deadline = time.Now().Add(patience)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// answers is how long servers may take to answer after a history.
const answers = time.Minute

// What faults need to know.

func (h *history) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) between(least, most time.Duration) time.Duration {
	return least + time.Duration(h.rng.Int64N(int64(most-least)))
}

func (h *history) name() string { return h.plan.Names[h.rng.IntN(len(h.plan.Names))] }

// names are all, in any order.
func (h *history) names() []string {
	names := slices.Clone(h.plan.Names)
	h.rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

// another is a source of random numbers for another goroutine.
func (h *history) another() *rand.Rand { return rand.New(rand.NewPCG(h.rng.Uint64(), 0)) }

// anyone is a worker that lives.
func (h *history) anyone() *child {
	for {
		if c := h.children[h.rng.IntN(len(h.children))]; c.killed == never {
			return c
		}
	}
}

// holder is a worker that has claims, if one can be found soon.
func (h *history) holder() *child {
	c := h.anyone()
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if c = h.anyone(); h.open(c) > 0 {
			return c
		}
	}
	return c
}
