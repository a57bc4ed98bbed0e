package main

import (
	"math"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestFigures(t *testing.T) {
	for _, c := range []struct {
		all                     figures
		median, least, greatest float64
	}{
		{figures{3}, 3, 3, 3},
		{figures{5, 1, 3}, 3, 1, 5},
		{figures{4, 1, 2, 10}, 3, 1, 10},
	} {
		if m, l, g := c.all.median(), c.all.least(), c.all.greatest(); m != c.median || l != c.least || g != c.greatest {
			t.Errorf("%v: got %v, %v, %v", c.all, m, l, g)
		}
	}
	if !math.IsNaN(figures(nil).median()) {
		t.Error("there is a median of nothing")
	}
	if f := (figures{3, 1, 2}); f.median() != 2 || f[0] != 3 {
		t.Error("the median changes the order of the repetitions")
	}
}

func TestFairness(t *testing.T) {
	for _, c := range []struct {
		turns []int
		want  float64
	}{{[]int{4, 2, 3}, 2}, {[]int{7}, 1}, {[]int{7, 0}, math.Inf(1)}} {
		if got := fairness(c.turns); got != c.want {
			t.Errorf("%v: got %v, want %v", c.turns, got, c.want)
		}
	}
}

// A time is in a bucket at most 3 % wide, and buckets are in the order of times.
func TestBuckets(t *testing.T) {
	before := -1
	for d := time.Duration(0); d < time.Hour; d += 1 + d/50 {
		b := bucket(d)
		if b < before || b >= len(recorder{}.counts) {
			t.Fatalf("%v is in bucket %d, after %d", d, b, before)
		}
		before = b
		if off := math.Abs(float64(middle(b) - d)); off > 1+float64(d)*0.03 {
			t.Fatalf("%v is in a bucket around %v", d, middle(b))
		}
	}
	bucket(math.MaxInt64)
	if b := bucket(-1); b != 0 {
		t.Errorf("a negative time is in bucket %d", b)
	}
}

func TestQuantiles(t *testing.T) {
	var one, other recorder
	for i := range 100 { // 1 to 100 ms, of two goroutines
		r := &one
		if i%2 == 0 {
			r = &other
		}
		r.record(time.Duration(i+1) * time.Millisecond)
	}
	h := one.histogram()
	h.add(other.histogram())
	if h.count() != 100 {
		t.Fatalf("there are %d", h.count())
	}
	for part, want := range map[float64]time.Duration{0: time.Millisecond, 0.5: 50 * time.Millisecond, 0.99: 99 * time.Millisecond, 1: 100 * time.Millisecond} {
		if got := h.quantile(part); (got - want).Abs() > want*3/100 {
			t.Errorf("%v: got %v, want %v", part, got, want)
		}
	}
	if (histogram{}).quantile(0.5) != 0 {
		t.Error("there is a median of nothing")
	}
}

// An update that one of two overwrites is lost, and one made in part is seen.
func TestPage(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("memory that processes share is for Linux here")
	}
	path, remove, err := newPage()
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	p, err := openPage(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	other, err := openPage(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	n, changed := p.begin(1)
	p.end(n)
	if m, again := p.begin(1); !changed || again || m != 1 || p.lost(1) != 0 || !p.whole(m) {
		t.Errorf("changed %v, then %v; lost %d of %d", changed, again, p.lost(1), m)
	}
	n, _ = p.begin(1)
	m, changed := other.begin(2)
	other.end(m)
	p.end(n)
	if !changed || p.lost(3) != 1 {
		t.Errorf("changed %v, lost %d, want 1", changed, p.lost(3))
	}
	if p.whole(n) {
		t.Error("half an update was not seen")
	}
}

// Only what clients send counts, and the time of a script with all that is in it.
func TestCommandStats(t *testing.T) {
	const info = "# Commandstats\r\n" +
		"cmdstat_set:calls=10,usec=100,usec_per_call=10.00,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_evalsha:calls=5,usec=200,usec_per_call=40.00,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_get:calls=5,usec=20,usec_per_call=4.00,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_config|get:calls=7,usec=20,usec_per_call=4.00,rejected_calls=0,failed_calls=0\r\n"
	for sends, want := range map[string]load{"": {5, 200 * time.Microsecond, 0}, "set": {15, 300 * time.Microsecond, 0}} {
		if got, err := parseStats(info, sends); err != nil || got != want {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
}

// The processor time of a server is that of its own process, in the kernel and outside.
func TestCPUOfRedis(t *testing.T) {
	const info = "# CPU\r\nused_cpu_sys:1.500000\r\nused_cpu_user:2.250000\r\nused_cpu_sys_children:8.0\r\nused_cpu_user_main_thread:9.0\r\n"
	if got, err := parseCPU(info); err != nil || got != 3750*time.Millisecond {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestShown(t *testing.T) {
	for want, got := range map[string]string{
		"0.0123": short(0.0123), "1.23": short(1.234), "12.3": short(12.34), "1,234,568": short(1234567.8), "∞": short(math.Inf(1)),
		"123": whole(123), "–": seconds(math.NaN()), "1.50 µs": seconds(1.5e-6), "20.0 ms": seconds(0.02), "450 ns": seconds(450e-9), "2.00 s": seconds(2),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for want, got := range map[string]string{
		"2.00 (1.00 – 3.00)": columns["requests"].cell(figures{3, 1, 2}),
		"2.00":               columns["requests"].cell(figures{2, 2}),
		"3":                  columns["lost"].cell(figures{0, 3, 0}),
		"–":                  columns["locks"].cell(nil),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// made is a bench that has measured something.
func made(rows ...*row) *bench { return &bench{sizes: usual(time.Second, 1), rows: rows} }

func rowOf(scenarioID, libraryID, column string, f ...float64) *row {
	for _, s := range usual(time.Second, 1).scenarios() {
		if s.id == scenarioID {
			return &row{scenario: s, library: libraryOf(libraryID), values: map[string]figures{column: f}}
		}
	}
	panic("no scenario " + scenarioID)
}

func TestTargets(t *testing.T) {
	b := made(
		rowOf("one-name", "dlock", "changes", 900, 1000, 1100),
		rowOf("one-name", "redsync", "changes", 10),
		rowOf("one-name", "rueidislock", "changes", 20),
		rowOf("one-name", "redislock", "changes", 5),
		rowOf("idle", "dlock", "rate", 3),
	)
	text := b.targets()
	for _, line := range []string{
		"| Redis, one name, 16 goroutines: hand-overs/s to the best other library's | ≥ 30 | 50.0 | yes |",
		"| Redis, 200 idle waiters: commands/s | ≤ 1 | 3.00 | no |",
		"| Redis, one name, 4 × 4: most/least | ≤ 1.4 | – | not measured |",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("there is no line %q in\n%s", line, text)
		}
	}
	if got := leastOf("one-name", "changes", "redsync", "redislock", "redsync-5ms")(b); got != 5 {
		t.Errorf("the least is %v", got)
	}
}

// Every target is of a column that is measured, with libraries that are.
func TestTargetsAreMeasured(t *testing.T) {
	var rows []*row
	for _, s := range usual(time.Second, 1).scenarios() {
		for _, id := range s.libraries {
			r := &row{scenario: s, library: libraryOf(id), values: map[string]figures{}}
			for _, key := range s.columns {
				r.values[key] = figures{1}
			}
			rows = append(rows, r)
		}
	}
	for _, target := range wanted {
		if got := target.got(made(rows...)); math.IsNaN(got) {
			t.Errorf("%s: is not measured", target.what)
		}
	}
}

func TestTable(t *testing.T) {
	r := rowOf("hands", "publish", "p50", 0.001, 0.002, 0.003)
	r.errors, r.first = 2, "no luck"
	got := table([]*row{r}, false)
	const want = "| Library | p50 | p99 | commands per lock | lost |\n|---|---|---|---|---|\n" +
		"| floor: publish and retry | 2.00 ms (1.00 ms – 3.00 ms) | – | – | – |\n" +
		"\n- floor: publish and retry: 2 errors, the first: no luck.\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestChart(t *testing.T) {
	var s strings.Builder
	b := made(rowOf("one-name", "dlock", "changes", 50_000), rowOf("one-name", "redsync", "changes", 0.5))
	if err := b.chart(&s); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"<svg", "dlock on Redis", "redsync", "100 k", "Liberation Sans,Arial"} {
		if !strings.Contains(s.String(), part) {
			t.Errorf("the chart has no %q", part)
		}
	}
}

func TestGrowth(t *testing.T) {
	var s strings.Builder
	b := made(rowOf("crowd-10", "dlock", "server", 0.00007), rowOf("holders-100", "dlock", "serverLock", 0.0001))
	if err := b.growth(&s); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"<svg", "µs of the server", "a hand-over, by waiters", "reader"} {
		if !strings.Contains(s.String(), part) {
			t.Errorf("the chart has no %q", part)
		}
	}
}
