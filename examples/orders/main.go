// Orders sells from one stock with many workers, in one process or several. Handler, service and
// repository each take the lock of the article, nested through the context: see layers.go.
//
//	go run ./examples/orders                 # the sample, the memory store
//	go run ./examples/orders -unsafe         # without the lock: oversells
//	go run ./examples/orders -file - < my.jsonl
//
// An order is one line of JSON:
//
//	{"id":"o-0001","sku":"mug-blue","quantity":2}
//
// The exit status is 0, or the greatest that applies: 1 for bad lines or orders that failed, 2 for
// wrong flags and errors of input and output, 3 for oversold stock, and 130 after Ctrl-C.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

const (
	statusBad         = 1
	statusUsage       = 2
	statusOversold    = 3
	statusInterrupted = 130
)

// sample has 2,000 orders for 40 articles. Four sell out at the default stock of 100. Their orders
// are for one unit each, so the sum of what is sold does not depend on which order comes first.
//
//go:embed sample.jsonl
var sample []byte

type config struct {
	store, file, stockDir string
	workers, stock        int
	io                    time.Duration
	unsafe                bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return statusUsage // parse has printed why
	}
	out := &console{w: stderr}
	defer out.close()
	status, err := sell(ctx, cfg, stdin, stdout, out)
	if err != nil {
		out.printf("orders: %v", err)
		return max(status, statusUsage)
	}
	return status
}

func parse(args []string, stderr io.Writer) (config, error) {
	var cfg config
	f := flag.NewFlagSet("orders", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&cfg.store, "store", "memory://", "`URL` of the store that keeps the locks: "+schemes())
	f.StringVar(&cfg.file, "file", "", "read orders from this `file`, - for standard input (default a sample of 2,000)")
	f.IntVar(&cfg.workers, "workers", 8, "`number` of orders served at once")
	f.IntVar(&cfg.stock, "stock", 100, "`units` of each SKU at the beginning")
	f.StringVar(&cfg.stockDir, "stock-dir", "", "keep the stock in this `directory`, for several processes with one store (default in memory)")
	f.DurationVar(&cfg.io, "io", time.Millisecond, "`time` that reading the stock is made to take")
	f.BoolVar(&cfg.unsafe, "unsafe", false, "leave the lock out, to see what happens")
	err := f.Parse(args)
	if err != nil {
		return cfg, err
	}
	switch {
	case f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q; orders come from -file", f.Arg(0))
	case cfg.workers < 1 || cfg.workers > 10_000:
		err = fmt.Errorf("-workers is %d, want 1 to 10000", cfg.workers)
	case cfg.stock < 0 || cfg.stock > 1_000_000_000:
		err = fmt.Errorf("-stock is %d, want 0 to 1000000000", cfg.stock)
	case cfg.io < 0:
		err = fmt.Errorf("-io is %v, want 0 or more", cfg.io)
	}
	if err != nil {
		fmt.Fprintf(stderr, "orders: %v\n", err)
	}
	return cfg, err
}

// sell serves all orders and prints the summary. Its error is one of input and output; all else is
// in the status.
func sell(ctx context.Context, cfg config, stdin io.Reader, stdout io.Writer, out *console) (status int, err error) {
	input, err := open(cfg.file, stdin)
	if err != nil {
		return 0, err
	}
	defer input.Close()
	goods, err := openStock(cfg)
	if err != nil {
		return 0, err
	}

	locks, closeLocks, err := openLocks(cfg, out)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closeLocks()) }()

	tally := newTally()
	repository := &repository{locks, goods, cfg.io, tally}
	service := &service{locks, repository}
	handler := &handler{locks, service, tally}

	readErr := serve(ctx, cfg.workers, input, handler, out)
	books, err := goods.audit()
	if err != nil {
		return 0, fmt.Errorf("auditing the stock: %w", err)
	}
	if err := tally.summarize(stdout, cfg, books); err != nil {
		return 0, err
	}
	switch {
	case ctx.Err() != nil:
		status = statusInterrupted
	case books.oversold > 0:
		status = statusOversold
	case tally.unserved():
		status = statusBad
	}
	return status, readErr
}

// serve reads orders and hands each to the next free worker. When ctx ends it returns, although the
// reader may still wait in a read.
func serve(ctx context.Context, workers int, input io.Reader, h *handler, out *console) error {
	orders := make(chan order)
	readErr := make(chan error, 1)
	go func() {
		defer close(orders)
		readErr <- readOrders(ctx, input, orders, func(line int, err error) {
			h.tally.badLine()
			out.printf("line %d: %v", line, err)
		})
	}()

	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for o := range until(ctx, orders) {
				if err := h.handle(ctx, o); err != nil {
					out.printf("line %d: order %q failed: %v", o.line, o.ID, err)
				}
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		out.printf("interrupted")
		return nil
	}
	return <-readErr
}

// until yields what comes from orders until ctx ends.
func until(ctx context.Context, orders <-chan order) func(yield func(order) bool) {
	return func(yield func(order) bool) {
		for {
			select {
			case o, ok := <-orders:
				if !ok || ctx.Err() != nil || !yield(o) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// open returns the orders: standard input, a file, or the sample.
func open(file string, stdin io.Reader) (io.ReadCloser, error) {
	switch file {
	case "":
		return io.NopCloser(bytes.NewReader(sample)), nil
	case "-":
		return io.NopCloser(stdin), nil
	}
	return os.Open(file)
}
