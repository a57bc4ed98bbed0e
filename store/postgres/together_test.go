package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// server is a map of lone holds, name to id, which answers after some time.
type server struct {
	mu     sync.Mutex
	holds  map[string]string
	sent   map[string]int // calls by id
	loads  [][]*call
	took   time.Duration
	stalls chan struct{} // if set, statements end when it is closed
	deaf   bool          // a stalled statement does not notice the end of its ctx
	cut    int           // statements whose ctx has ended

	underWay, most int // loads
}

func newServer(took time.Duration) (*server, *combiner) {
	s := &server{holds: make(map[string]string), sent: make(map[string]int), took: took}
	return s, &combiner{
		ctx:   context.Background(),
		alone: func(ctx context.Context, c *call) answer { return s.run(ctx, []*call{c})[0] },
		together: func(ctx context.Context, calls []*call) []answer {
			s.mu.Lock()
			s.loads = append(s.loads, calls)
			s.underWay++
			s.most = max(s.most, s.underWay)
			s.mu.Unlock()
			defer func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.underWay--
			}()
			return s.run(ctx, calls)
		},
	}
}

func (s *server) run(ctx context.Context, calls []*call) []answer {
	s.mu.Lock()
	stalls := s.stalls
	for _, c := range calls {
		s.sent[c.id]++
	}
	s.mu.Unlock()
	var err error
	if stalls != nil {
		if s.deaf {
			ctx = context.Background()
		}
		select {
		case <-stalls:
		case <-ctx.Done():
			err = ctx.Err()
		}
	} else {
		time.Sleep(s.took)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answers := make([]answer, len(calls))
	if err != nil {
		s.cut++
		for i := range answers {
			answers[i].err = err
		}
		return answers
	}
	for i, c := range calls {
		switch id := s.holds[c.name]; {
		case c.take && id == "":
			s.holds[c.name], answers[i].done = c.id, true
		case !c.take && id == c.id:
			delete(s.holds, c.name)
			answers[i].done = true
		}
	}
	return answers
}

// stall makes statements wait until the function that it returns is called.
func (s *server) stall() (resume func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stalls := make(chan struct{})
	s.stalls = stalls
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stalls = nil
		close(stalls)
	}
}

func take(n int) *call { return &call{take: true, name: fmt.Sprint("n", n), id: fmt.Sprint("id", n)} }

// fill sends as many calls as go alone. They end when the server goes on.
func fill(ctx context.Context, c *combiner) {
	for n := range few {
		go c.do(ctx, take(-1-n))
	}
	synctest.Wait()
}

// idle checks that no call is left and that all slots are free.
func idle(t *testing.T, c *combiner) {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls != 0 || c.used != 0 || len(c.waiting) != 0 {
		t.Errorf("in the end there are %d calls, %d slots are in use and %d calls wait", c.calls, c.used, len(c.waiting))
	}
}

// TestFewCallsGoAlone: calls wait for each other only when they are many.
func TestFewCallsGoAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServer(time.Millisecond)
		began := time.Now()
		var callers sync.WaitGroup
		for n := range few {
			callers.Go(func() {
				if a := c.do(t.Context(), take(n)); !a.done {
					t.Errorf("got %+v, want it done", a)
				}
			})
		}
		callers.Wait()
		if took := time.Since(began); took != s.took || len(s.loads) > 0 {
			t.Errorf("took %v with %d loads, want %v and none", took, len(s.loads), s.took)
		}
		idle(t, c)
	})
}

// TestCallsTravelTogether: calls that find no slot travel in few statements of bounded
// size and of one kind each, and each gets its own answer.
func TestCallsTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServer(time.Millisecond)
		const calls = 10 * mostTogether
		for n := range calls / 4 {
			s.holds[fmt.Sprint("n", n)] = fmt.Sprint("id", n)
		}
		var callers sync.WaitGroup
		for n := range calls {
			w, want := take(n), n >= calls/4
			if n%2 == 0 {
				w.take, want = false, n < calls/4
			}
			callers.Go(func() {
				if a := c.do(t.Context(), w); a.done != want || a.err != nil {
					t.Errorf("call %d: got %+v, want done %v", n, a, want)
				}
			})
		}
		callers.Wait()
		idle(t, c)
		for _, load := range s.loads {
			for _, w := range load {
				if w.take != load[0].take {
					t.Fatal("a load takes and gives back")
				}
			}
			if len(load) > mostTogether {
				t.Errorf("a load has %d calls", len(load))
			}
		}
		together := 0
		for _, load := range s.loads {
			together += len(load)
		}
		if alone := calls - together; len(s.loads) > calls/mostTogether+2 || alone > few || s.most > slots {
			t.Errorf("%d calls: %d loads, %d of them at once, and %d calls alone", calls, len(s.loads), s.most, alone)
		}
	})
}

// TestCallThatEndsBeforeItIsSent: it returns at once and is never sent.
func TestCallThatEndsBeforeItIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServer(time.Millisecond)
		resume := s.stall()
		fill(t.Context(), c)
		ctx, cancel := context.WithTimeout(t.Context(), slowAfter/2)
		defer cancel()
		go c.do(t.Context(), take(2))
		began := time.Now()
		if a := c.do(ctx, take(1)); a.done || !errors.Is(a.err, context.DeadlineExceeded) || time.Since(began) != slowAfter/2 {
			t.Errorf("got %+v after %v, want the error of its ctx after %v", a, time.Since(began), slowAfter/2)
		}
		resume()
		idle(t, c)
		if s.sent["id1"] != 0 || s.sent["id2"] != 1 {
			t.Errorf("sent %d times, and the call behind it %d times; want 0 and 1", s.sent["id1"], s.sent["id2"])
		}
	})
}

// TestCallThatEndsOnItsWay: its ctx ends neither the statement nor another call of it.
// When no call waits for the statement any more, it is cancelled.
func TestCallThatEndsOnItsWay(t *testing.T) {
	for name, all := range map[string]bool{"one": false, "all": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c := newServer(time.Millisecond)
				resume := s.stall()
				fill(t.Context(), c)
				short, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				var callers sync.WaitGroup
				for n := range 3 {
					ctx := short
					if n == 2 && !all {
						ctx = t.Context()
					}
					callers.Go(func() {
						began := time.Now()
						a, took := c.do(ctx, take(n)), time.Since(began)
						if ctx == short && (a.err == nil || took != time.Second) {
							t.Errorf("call %d: got %+v after %v, want an error after 1s", n, a, took)
						}
						if ctx != short && (!a.done || took != 3*time.Second) {
							t.Errorf("call %d: got %+v after %v, want it done after 3s", n, a, took)
						}
					})
				}
				time.Sleep(3 * time.Second)
				synctest.Wait()
				cut := s.cut
				resume()
				callers.Wait()
				if len(s.loads) != 1 || (cut == 1) != all {
					t.Errorf("%d loads, %d of them cancelled, want one, cancelled: %v", len(s.loads), cut, all)
				}
				idle(t, c)
			})
		})
	}
}

// TestSlowStatementGivesUpItsSlot: statements that are blocked delay further calls
// for a bounded time.
func TestSlowStatementGivesUpItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServer(time.Millisecond)
		resume := s.stall()
		fill(t.Context(), c)
		s.mu.Lock()
		s.stalls = nil // for those that come now
		s.mu.Unlock()
		began := time.Now()
		if a := c.do(t.Context(), take(1)); !a.done || time.Since(began) != slowAfter+s.took {
			t.Errorf("got %+v after %v, want it done after %v", a, time.Since(began), slowAfter+s.took)
		}
		if a := c.do(t.Context(), take(2)); !a.done || time.Since(began) != slowAfter+2*s.took {
			t.Errorf("the next one: got %+v after %v", a, time.Since(began))
		}
		resume()
		idle(t, c)
	})
}

// TestCloseEndsCallsOnTheirWay: with an unknown outcome, whether they travel or wait.
func TestCloseEndsCallsOnTheirWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServer(time.Millisecond)
		resume := s.stall()
		defer resume()
		ctx, closing := context.WithCancel(t.Context())
		c.ctx = ctx
		fill(ctx, c)
		var callers sync.WaitGroup
		for n := range 3 * mostTogether {
			callers.Go(func() {
				if a := c.do(t.Context(), take(n)); a.done || a.err == nil {
					t.Errorf("got %+v, want an error", a)
				}
			})
		}
		synctest.Wait()
		closing()
		callers.Wait()
		idle(t, c)
	})
}

// TestRandomCalls: whatever ends when, a call is sent once at most, an answer is
// true, and no slot is lost.
func TestRandomCalls(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			s, c := newServer(time.Duration(1+random.IntN(120)) * time.Millisecond)
			s.deaf = seed%2 == 0
			var callers sync.WaitGroup
			for n := range 200 {
				begin, patience := time.Duration(random.IntN(300))*time.Millisecond, time.Duration(random.IntN(400))*time.Millisecond
				callers.Go(func() {
					time.Sleep(begin)
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					a := c.do(ctx, take(n))
					s.mu.Lock()
					defer s.mu.Unlock()
					held := s.holds[fmt.Sprint("n", n)] != ""
					if a.done && !held || !a.done && a.err == nil || s.sent[fmt.Sprint("id", n)] > 1 {
						t.Errorf("seed %d, call %d: got %+v, held %v, sent %d times", seed, n, a, held, s.sent[fmt.Sprint("id", n)])
					}
				})
			}
			time.Sleep(100 * time.Millisecond)
			resume := s.stall()
			time.Sleep(100 * time.Millisecond)
			resume()
			callers.Wait()
			idle(t, c)
		})
	}
}
