// Service is an HTTP service in three layers that share one lock, and a graceful shutdown.
//
//	go run ./examples/service                                # locks in memory
//	go run ./examples/service -redis redis://localhost:6379  # locks between processes
//	curl -i -X POST localhost:8080/reserve/mug
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/dlock-go/dlock/store/redis"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends. It returns when all requests are answered and all locks released.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("service", flag.ContinueOnError)
	addr := flags.String("addr", "localhost:8080", "listen on this `address`")
	redisURL := flags.String("redis", "", "`URL` of the Redis server for the locks (default: locks in memory)")
	work := flags.Duration("work", 10*time.Millisecond, "`time` that a reservation takes")
	wait := flags.Duration("wait", 2*time.Second, "`time` after which a request gives up")
	if err := flags.Parse(args); err != nil {
		return err
	}
	locks, err := openStore(*redisURL)
	if err != nil {
		return err
	}
	client, err := dlock.New(locks, &dlock.Options{Logger: slog.Default()})
	if err != nil {
		return errors.Join(err, locks.Close())
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return errors.Join(err, client.Close(), locks.Close())
	}
	server := &http.Server{Handler: routes(client, newStock(*work), *wait)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Fprintf(out, "listening on http://%s\n", listener.Addr())

	select {
	case err = <-served: // it cannot serve
	case <-ctx.Done():
		fmt.Fprintln(out, "stopping")
	}
	last, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	// The order counts: requests end first, then the client releases what is left, then the store.
	return errors.Join(err, server.Shutdown(last), client.Close(), locks.Close())
}

func openStore(redisURL string) (store.Store, error) {
	if redisURL == "" {
		return memory.New(), nil
	}
	return redis.Open(redisURL)
}
