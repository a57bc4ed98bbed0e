package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store/memory"
)

// outcome is what one run of the program left.
type outcome struct {
	status         int
	stdout, stderr string
}

func runOrders(stdin string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	status := run(context.Background(), args, strings.NewReader(stdin), &stdout, &stderr)
	return outcome{status, stdout.String(), stderr.String()}
}

// want checks the exit status and figures of the summary, as "label value".
func (o outcome) want(t *testing.T, status int, figures ...string) {
	t.Helper()
	if o.status != status {
		t.Errorf("exit status %d, want %d", o.status, status)
	}
	for _, f := range figures {
		if o.figure(t, f[:strings.LastIndexByte(f, ' ')]) != f[strings.LastIndexByte(f, ' ')+1:] {
			t.Errorf("want %q", f)
		}
	}
	if t.Failed() {
		t.Logf("stdout:\n%s\nstderr:\n%s", o.stdout, o.stderr)
	}
}

// figure returns the number behind a label of the summary.
func (o outcome) figure(t *testing.T, label string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^ *` + label + ` +(\d+)`).FindStringSubmatch(o.stdout)
	if m == nil {
		t.Errorf("no %q in the summary", label)
		return ""
	}
	return m[1]
}

// wantMessage checks a line of standard error.
func (o outcome) wantMessage(t *testing.T, message string) {
	t.Helper()
	if !strings.Contains(o.stderr, message) {
		t.Errorf("standard error has no %q:\n%s", message, o.stderr)
	}
}

// first returns the first n orders of the sample.
func first(n int) string { return strings.Join(strings.SplitAfter(string(sample), "\n")[:n], "") }

// outcomeOf counts what orders have to come to, whatever the order of service.
func outcomeOf(t *testing.T, lines string, stock int) (skus, orders, accepted, sold int) {
	t.Helper()
	requested, count, largest := map[string]int{}, map[string]int{}, map[string]int{}
	for line := range strings.Lines(lines) {
		o, err := parseOrder([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		requested[o.SKU] += o.Quantity
		count[o.SKU]++
		largest[o.SKU] = max(largest[o.SKU], o.Quantity)
		orders++
	}
	for sku, units := range requested {
		sold += min(units, stock)
		switch {
		case units <= stock:
			accepted += count[sku]
		case largest[sku] == 1:
			accepted += stock
		default:
			t.Fatalf("%s sells out with orders of several units", sku)
		}
	}
	return len(requested), orders, accepted, sold
}

func TestSample(t *testing.T) {
	skus, orders, accepted, sold := outcomeOf(t, string(sample), 100)
	if skus != 40 || orders != 2000 || accepted == orders {
		t.Errorf("the sample has %d SKUs and %d orders, of which %d can be accepted", skus, orders, accepted)
	}
	for workers, io := range map[int]string{1: "0", 10: "50us"} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			t.Parallel()
			o := runOrders("", "-workers", fmt.Sprint(workers), "-io", io)
			o.want(t, 0, "orders 2000", "failed 0", "bad lines 0", "waits 2000", "re-entries 4000", "tokens 2000", "oversold 0",
				fmt.Sprint("accepted ", accepted), fmt.Sprint("turned down ", orders-accepted), fmt.Sprint("units sold ", sold))
		})
	}
}

func TestUnsafeOversells(t *testing.T) {
	t.Parallel()
	o := runOrders("", "-unsafe")
	o.want(t, statusOversold, "orders 2000")
	if o.figure(t, "oversold") == "0" {
		t.Error("nothing oversold without the lock")
	}
}

func TestStockDir(t *testing.T) {
	t.Parallel()
	_, _, accepted, sold := outcomeOf(t, first(500), 100)
	dir := filepath.Join(t.TempDir(), "stock")
	o := runOrders(first(500), "-file", "-", "-stock-dir", dir, "-io", "0")
	o.want(t, 0, "oversold 0", fmt.Sprint("accepted ", accepted), fmt.Sprint("units sold ", sold))

	again := runOrders("", "-stock-dir", dir)
	again.want(t, statusUsage)
	again.wantMessage(t, "is not empty")
}

// Two runs at once on one stock, each without a lock, as two processes would be.
func TestStockDirIsShared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { runOrders(first(500), "-file", "-", "-unsafe", "-stock-dir", dir, "-stock", "20") })
	}
	wg.Wait()
	o := runOrders("", "-unsafe", "-stock-dir", dir, "-file", os.DevNull)
	o.want(t, statusOversold, "orders 0")
}

func TestBadLines(t *testing.T) {
	long := `{"sku":"` + strings.Repeat("x", maxLine) + `","quantity":1}`
	lines := []struct{ line, message string }{
		{"\ufeff" + `{"sku":"mug","quantity":1}`, ""},
		{`{"sku":"mug","quantity":2`, "unfinished JSON"},
		{`{"sku":"mug","quantity":1,"colour":"red"}`, `unknown field "colour"`},
		{``, ""},
		{`{"quantity":1}`, "sku is missing"},
		{`{"sku":"mug"}`, "quantity is 0, want 1 to 1000"},
		{`{"sku":"mug","quantity":-1}`, "quantity is -1"},
		{`{"sku":"mug","quantity":1001}`, "quantity is 1001"},
		{`{"sku":"mug","quantity":99999999999999999999}`, "cannot unmarshal number"},
		{`{"sku":"mug","quantity":1.5}`, "cannot unmarshal number 1.5"},
		{`{"sku":"mug","quantity":"1"}`, "cannot unmarshal string"},
		{`{"sku":"mug","quantity":1} {}`, "something follows"},
		{`mug`, "invalid character"},
		{`null`, "sku is missing"},
		{long, "longer than 4096 bytes"},
		{long + long, "longer than 4096 bytes"},
		{`{"sku":"` + strings.Repeat("x", 65) + `","quantity":1}`, "sku has 65 bytes"},
		{"\x00\xff", "invalid character"},
		{`{"id":"last","sku":"mug","quantity":1}` + "\r", ""},
	}
	var input []string
	bad := 0
	for _, l := range lines {
		input = append(input, l.line)
		if l.message != "" {
			bad++
		}
	}
	o := runOrders(strings.Join(input, "\n"), "-file", "-")
	o.want(t, statusBad, "orders 2", "accepted 2", fmt.Sprint("bad lines ", bad))
	for i, l := range lines {
		prefix := fmt.Sprintf("line %d: ", i+1)
		switch {
		case l.message != "":
			line := regexp.MustCompile(`(?m)^` + prefix + `.*$`).FindString(o.stderr)
			if !strings.Contains(line, l.message) {
				t.Errorf("reported %q, want line %d: %s", line, i+1, l.message)
			}
		case strings.Contains(o.stderr, prefix):
			t.Errorf("line %d was reported", i+1)
		}
	}
}

func TestLongestLine(t *testing.T) {
	line := `{"sku":"mug","quantity":1}`
	line += strings.Repeat(" ", maxLine-len(line))
	runOrders(line+"\r\n"+line+"\n"+line, "-file", "-").want(t, 0, "orders 3")
}

func TestEmptyInput(t *testing.T) {
	runOrders("", "-file", "-").want(t, 0, "orders 0", "waits 0", "tokens 0", "oversold 0")
}

func TestWrongUse(t *testing.T) {
	for _, c := range []struct {
		message string
		args    []string
	}{
		{`unknown scheme "carrier-pigeon"; supported: etcd://, memory://, postgres://, postgresql://, redis://, rediss://, zk://`, []string{"-store", "carrier-pigeon://user:secret@host"}},
		{"-store is not a URL; supported: etcd://, memory://, postgres://, postgresql://, redis://, rediss://, zk://", []string{"-store", "user:secret@memory"}},
		{"no such file", []string{"-file", filepath.Join(t.TempDir(), "none")}},
		{"is a directory", []string{"-file", t.TempDir()}},
		{"-workers is 0", []string{"-workers", "0"}},
		{"-stock is -1", []string{"-stock", "-1"}},
		{"-io is -1s", []string{"-io", "-1s"}},
		{`unexpected argument "orders.jsonl"`, []string{"orders.jsonl"}},
		{"flag provided but not defined", []string{"-safe"}},
	} {
		t.Run(c.message, func(t *testing.T) {
			o := runOrders("", c.args...)
			o.want(t, statusUsage)
			o.wantMessage(t, c.message)
			if strings.Contains(o.stderr, "secret") {
				t.Error("the message has the password in it")
			}
		})
	}
	if o := runOrders("", "-h"); o.status != 0 {
		t.Errorf("-h: exit status %d", o.status)
	}
}

// An input that never ends, like a terminal without a user.
func TestInterrupt(t *testing.T) {
	in, typed := io.Pipe()
	defer typed.Close()
	ctx, interrupt := context.WithCancel(context.Background())
	go func() {
		fmt.Fprintln(typed, `{"sku":"mug","quantity":1}`)
		fmt.Fprintln(typed) // returns when the reader wants what follows the order
		interrupt()
	}()
	var stdout, stderr bytes.Buffer
	o := outcome{status: run(ctx, []string{"-file", "-"}, in, &stdout, &stderr)}
	o.stdout, o.stderr = stdout.String(), stderr.String()
	o.want(t, statusInterrupted, "failed 0", "oversold 0")
	o.wantMessage(t, "interrupted")
}

func TestFailingInput(t *testing.T) {
	var stdout, stderr bytes.Buffer
	in := io.MultiReader(strings.NewReader(`{"sku":"mug","quantity":1}`+"\n"), broken{})
	o := outcome{status: run(context.Background(), []string{"-file", "-"}, in, &stdout, &stderr)}
	o.stdout, o.stderr = stdout.String(), stderr.String()
	o.want(t, statusUsage, "orders 1", "accepted 1")
	o.wantMessage(t, "line 2: pulled the plug")
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("pulled the plug") }

// A lock that is lost while an order is served makes it fail, and it sells nothing.
func TestLostLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := dlock.New(memory.New(), &dlock.Options{MaxHold: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		locks, tally, goods := locks{client}, newTally(), newMemoryStock(100)
		h := &handler{locks, &service{locks, &repository{locks, goods, time.Minute, tally}}, tally}

		err = h.handle(t.Context(), order{SKU: "mug", Quantity: 1})
		if !errors.Is(err, dlock.ErrLost) {
			t.Errorf("handle: %v, want ErrLost", err)
		}
		if b, _ := goods.audit(); b.sold != 0 || tally.orders.failed != 1 {
			t.Errorf("sold %d, failed %d; want 0 and 1", b.sold, tally.orders.failed)
		}
	})
}

func TestFence(t *testing.T) {
	dir, err := openDirStock(t.TempDir(), 10, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []stock{newMemoryStock(10), dir} {
		t.Run(fmt.Sprintf("%T", s), func(t *testing.T) {
			if err := s.write("mug/../a b", 9, 5); err != nil {
				t.Error(err)
			}
			if left, err := s.read("mug/../a b", 6); left != 9 || err != nil {
				t.Errorf("read: %d, %v", left, err)
			}
			if err := s.write("mug/../a b", 8, 5); err == nil {
				t.Error("write with token 5 after a read with 6: not refused")
			}
			if _, err := s.read("mug/../a b", 5); err == nil {
				t.Error("read with token 5 after one with 6: not refused")
			}
			if err := s.write("mug/../a b", 8, 6); err != nil {
				t.Error(err)
			}
			if left, err := s.read("cup", 1); left != 10 || err != nil {
				t.Errorf("another article: %d, %v", left, err)
			}
			if err := s.book("cup", 11); err != nil {
				t.Error(err)
			}
			if b, err := s.audit(); b != (books{initial: 20, sold: 11, oversold: 1}) || err != nil {
				t.Errorf("audit: %+v, %v", b, err)
			}
		})
	}
}

func TestConsole(t *testing.T) {
	var w bytes.Buffer
	c := &console{w: &w}
	c.printf("a message of %d", 1)
	c.close()
	c.printf("too late")
	if want := "a message of 1\n"; w.String() != want {
		t.Errorf("got %q\nwant %q", w.String(), want)
	}
}

// The last lines say what the figures mean.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		unsafe   bool
		oversold int
		want     []string
	}{
		{false, 0, []string{"OK: nothing oversold"}},
		{false, 2, []string{"WRONG: 2 units were sold that do not exist"}},
		{true, 2, []string{"WRONG: 2 units", "This run took no locks. It is faster because"}},
		{true, 0, []string{"OK: nothing oversold", "two orders can sell the same unit"}},
	} {
		got := verdict(c.unsafe, c.oversold)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("verdict(%v, %d) is %q, want %q in it", c.unsafe, c.oversold, got, want)
			}
		}
		if !c.unsafe && strings.Contains(got, "faster") {
			t.Errorf("the verdict of a run with locks speaks of one without: %q", got)
		}
	}
	o := runOrders("", "-workers", "4", "-io", "0")
	if !strings.HasSuffix(o.stdout, "\n\nOK: nothing oversold\n") {
		t.Errorf("the summary does not end with the verdict:\n%s", o.stdout)
	}
}

func TestPercentile(t *testing.T) {
	var list []time.Duration
	for i := range 200 {
		list = append(list, time.Duration(i+1))
	}
	for _, c := range []struct {
		n, p int
		want time.Duration
	}{{0, 50, 0}, {1, 99, 1}, {2, 50, 1}, {200, 50, 100}, {200, 99, 198}} {
		if got := percentile(list[:c.n], c.p); got != c.want {
			t.Errorf("p%d of 1..%d: %d, want %d", c.p, c.n, got, c.want)
		}
	}
}
