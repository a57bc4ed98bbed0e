package sim

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/dlock-go/dlock/store/quorum"
)

// backend is what all clients share: one store, or nodes that make a quorum.
type backend interface {
	handle() store.Store
	lose()             // everything but how far the tokens have come
	force(name string) // remove all holds of a name
	left() []string    // names in use
	close()
}

// quorumServer is several memory stores. Beside what the plan has in store for the
// links of clients, some minority of the nodes misbehaves: calls that meet a fault
// of their own, and restarts that lose everything. A minority is never to be
// noticed, so plans without faults are judged as if there were none here.
type quorumServer struct {
	history *History

	mu      sync.Mutex
	draw    draw
	nodes   []*node
	handles []*quorumHandle
	faults  map[int]nodeFault
}

// node says since when it has been up, if it has restarted, and may reserve fewer
// tokens than it is asked for.
type node struct {
	*memory.Store
	since time.Time
	scant int // how many it reserves at most; 0: as many as asked for
}

// peer is node i for one client. In some histories all nodes vote in one round trip, in some none or
// every second one.
func (s *quorumServer) peer(i int) store.Store {
	n := s.nodes[i]
	peer := &node{n.Store.Peer(), n.since, n.scant}
	if kind := s.history.Plan.Seed % 4; kind == 0 || kind == 1 && i%2 == 0 {
		return peer
	}
	return faultstore.Voter(peer)
}

func (n *node) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	asked := req.Tokens
	if n.scant > 0 {
		req.Tokens = min(asked, n.scant)
	}
	g, err := n.Store.Acquire(ctx, req)
	if g.Held {
		g.Short = asked - req.Tokens
	}
	return g, err
}

func (n *node) Incarnation(ctx context.Context) (id string, age time.Duration, err error) {
	id, age, err = n.Store.Incarnation(ctx)
	if !n.since.IsZero() {
		age = time.Since(n.since)
	}
	return id, age, err
}

type nodeFault struct {
	share float64
	fault func(draw, time.Duration) faultstore.Fault
}

// nodeFaults are what a node may do to calls.
var nodeFaults = []func(d draw, ttl time.Duration) faultstore.Fault{
	func(draw, time.Duration) faultstore.Fault { return faultstore.DropRequest() },
	func(draw, time.Duration) faultstore.Fault { return faultstore.DropReply() },
	func(draw, time.Duration) faultstore.Fault { return faultstore.Mute() },
	func(draw, time.Duration) faultstore.Fault { return faultstore.MuteReply() },
	func(d draw, ttl time.Duration) faultstore.Fault { return faultstore.DelayRequest(d.upTo(ttl / 50)) },
	func(d draw, ttl time.Duration) faultstore.Fault { return faultstore.DelayReply(d.upTo(ttl / 50)) },
	func(d draw, ttl time.Duration) faultstore.Fault { return faultstore.DelayRequest(d.upTo(2 * ttl)) },
	func(d draw, ttl time.Duration) faultstore.Fault { return faultstore.DelayReply(d.upTo(2 * ttl)) },
	func(d draw, ttl time.Duration) faultstore.Fault { return faultstore.DuplicateAfter(d.upTo(2 * ttl)) },
	func(draw, time.Duration) faultstore.Fault { return faultstore.Answer(errRefusal) },
}

func newQuorumServer(h *History, nodes int) *quorumServer {
	s := &quorumServer{history: h, faults: make(map[int]nodeFault), draw: draw{rand.New(rand.NewPCG(h.Plan.Seed, 3))}}
	scant := h.Plan.Scant
	if slices.ContainsFunc(h.Plan.Deeds, func(d Deed) bool { return d.Break >= 0 }) {
		scant = 0 // what an operator removes is told by whole spans
	}
	for range nodes {
		s.nodes = append(s.nodes, &node{Store: memory.New(), scant: scant})
	}
	for _, i := range s.draw.Perm(nodes)[:nodes/2] {
		if s.draw.one(4) {
			continue
		}
		s.faults[i] = nodeFault{0.05 + s.draw.Float64()*0.95, pick(s.draw, nodeFaults...)}
		for range s.draw.IntN(3) {
			h.after(s.draw.within(200), func() { s.restart(i) })
		}
	}
	return s
}

// handle opens a quorum of its own for one client.
func (s *quorumServer) handle() store.Store {
	h := &quorumHandle{server: s}
	var links []store.Store
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.nodes {
		link := faultstore.New(s.peer(i))
		if f, ok := s.faults[i]; ok {
			link.On(faultstore.Any, faultstore.Every, s.meet(f))
		}
		h.links, links = append(h.links, link), append(links, link)
	}
	q, err := quorum.NewWithOptions(&quorum.Options{LongestLease: longestLease(&s.history.Plan)}, links...)
	if err != nil {
		panic(err) // the number of nodes is wrong
	}
	h.Store = q
	s.handles = append(s.handles, h)
	return h
}

// longestLease is what a quorum has to be told if the leases of a name may differ. 0: all are the same. Without it a node
// that has restarted may vote for a short lease while a longer one lasts.
func longestLease(p *Plan) time.Duration {
	var leases []time.Duration
	fastest := 1.0
	for _, c := range p.Clients {
		leases = append(leases, c.TTL, cmp.Or(c.WaitTTL, c.TTL))
		fastest = max(fastest, c.Rate, 1/c.Rate)
	}
	for _, task := range p.Tasks {
		for _, v := range task.Visits {
			if v.TTL > 0 {
				leases = append(leases, v.TTL)
			}
		}
	}
	if fastest == 1 && slices.Min(leases) == slices.Max(leases) {
		return 0
	}
	return time.Duration(fastest*float64(slices.Max(leases))) + 1 // a client's clock makes of a lease what it likes
}

func (s *quorumServer) meet(f nodeFault) faultstore.Fault {
	return func(ctx context.Context, deliver func(context.Context) faultstore.Result) faultstore.Result {
		s.mu.Lock()
		var fault faultstore.Fault
		if s.draw.Float64() < f.share {
			fault = f.fault(s.draw, s.history.Plan.TTL)
		}
		s.mu.Unlock()
		if fault == nil {
			return deliver(ctx)
		}
		return fault(ctx, deliver)
	}
}

// restart has node i forget everything but how far its tokens have come, as a
// server does whose tokens follow its clock.
func (s *quorumServer) restart(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.empty(i, tokenOf(s.nodes[i].Store))
}

func (s *quorumServer) empty(i int, token uint64) {
	s.nodes[i] = &node{memory.New(), time.Now(), s.nodes[i].scant}
	advance(s.nodes[i].Store, token)
	for _, h := range s.handles {
		h.links[i].Swap(s.peer(i))
		h.links[i].Emit(store.Event{})
	}
}

// advance moves the tokens of a new store beyond one.
func advance(m *memory.Store, token uint64) {
	ctx := context.Background()
	seed := store.Request{Name: "seed", Owner: "seed", ID: "seed", TTL: time.Hour, WaitTTL: time.Hour, Tokens: int(token) + 1000}
	_, err := m.Acquire(ctx, seed)
	if err = errors.Join(err, m.Release(ctx, store.Ref{Name: "seed", Owner: "seed", ID: "seed", TTL: time.Hour})); err != nil {
		panic(err)
	}
}

func tokenOf(m *memory.Store) uint64 {
	state, err := m.Inspect(context.Background(), "any")
	if err != nil {
		panic(err)
	}
	return state.Token
}

// token is the last one that any node has issued.
func (s *quorumServer) token() (last uint64) {
	for _, n := range s.nodes {
		last = max(last, tokenOf(n.Store))
	}
	return last
}

func (s *quorumServer) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, token := s.history.now(), s.token()
	for i := range s.nodes {
		s.empty(i, token)
	}
	s.history.mark("", from, token)
}

func (s *quorumServer) force(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A counter may be ahead of what the nodes have agreed on, and they may have
	// agreed on what nobody was told yet.
	from, token := s.history.now(), max(s.history.granted(name), s.agreed(name))
	for _, n := range s.nodes {
		if _, err := n.Break(context.Background(), name); err != nil {
			panic(err)
		}
	}
	s.history.mark(name, from, token)
}

// agreed is the greatest token that a majority of the nodes has given to holds.
func (s *quorumServer) agreed(name string) (token uint64) {
	count := make(map[uint64]int)
	for _, n := range s.nodes {
		state, err := n.Inspect(context.Background(), name)
		if err != nil {
			panic(err)
		}
		here := make(map[uint64]bool) // holds of one owner share a token
		for _, h := range state.Holders {
			here[h.Token+s.history.span(h.ID)] = true
		}
		for t := range here {
			if count[t]++; count[t] > len(s.nodes)/2 {
				token = max(token, t)
			}
		}
	}
	return token
}

func (s *quorumServer) left() (names []string) {
	for _, n := range s.nodes {
		list, err := n.List(context.Background())
		if err != nil {
			panic(err)
		}
		names = append(names, list...)
	}
	return names
}

func (s *quorumServer) close() {
	for _, h := range s.handles {
		if err := h.Store.Close(); err != nil {
			panic(err)
		}
	}
}

// granted is the greatest token of a name that a client was given, or is about to be.
func (h *History) granted(name string) (token uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.Calls {
		for _, a := range c.Arrivals {
			if c.Name == name && a.Outcome == Held {
				token = max(token, a.Token+uint64(c.Tokens-1))
			}
		}
	}
	return token
}

// span is how many tokens an id has reserved beside its first, by the characters
// of it that Inspect shows.
func (h *History) span(short string) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, n := range h.ids {
		if store.Short(id) != short {
			continue
		}
		for _, c := range h.Calls {
			if c.ID == n && c.Op == Acquire {
				return uint64(c.Tokens - 1)
			}
		}
	}
	return 0
}

// quorumHandle is the end of a client's link at the quorum.
type quorumHandle struct {
	*quorum.Store
	server *quorumServer
	links  []*faultstore.Store
}

func (h *quorumHandle) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	from := h.server.history.now()
	g, err := h.Store.Acquire(ctx, req)
	for _, c := range sendingOf(ctx).calls {
		h.server.history.arrived(c, from, g, err)
	}
	return g, err
}

func (h *quorumHandle) Renew(ctx context.Context, refs []store.Ref) []error {
	from := h.server.history.now()
	results := h.Store.Renew(ctx, refs)
	for i, c := range sendingOf(ctx).calls {
		h.server.history.arrived(c, from, store.Grant{}, results[i])
	}
	return results
}

func (h *quorumHandle) Release(ctx context.Context, ref store.Ref) error {
	from := h.server.history.now()
	err := h.Store.Release(ctx, ref)
	for _, c := range sendingOf(ctx).calls {
		h.server.history.arrived(c, from, store.Grant{}, err)
	}
	return err
}

// Close does nothing: a link may still bring something to an end that its client has left.
func (h *quorumHandle) Close() error { return nil }
