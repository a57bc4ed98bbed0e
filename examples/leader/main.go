// Leader is a program of which any number of instances may run, and one leads.
//
//	go run ./examples/leader -redis redis://localhost:6379 -name one &
//	go run ./examples/leader -redis redis://localhost:6379 -name two &
//	kill %1     # two leads at once
//	kill -9 %2  # an instance that is started now leads after a lease
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store/redis"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "leader:", err)
		os.Exit(1)
	}
}

// run stands for election until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("leader", flag.ContinueOnError)
	url := flags.String("redis", "redis://localhost:6379", "`URL` of the Redis server")
	host, _ := os.Hostname() // a name without a host will do
	name := flags.String("name", fmt.Sprintf("%s/%d", host, os.Getpid()), "`name` of this instance")
	ttl := flags.Duration("ttl", 10*time.Second, "`time` after which a dead leader is replaced")
	if err := flags.Parse(args); err != nil {
		return err
	}
	locks, err := redis.Open(*url)
	if err != nil {
		return err
	}
	defer locks.Close()
	client, err := dlock.New(locks, &dlock.Options{TTL: *ttl, Label: *name})
	if err != nil {
		return err
	}
	err = stand(ctx, client.Mutex("leader"), func(ctx context.Context) error { return lead(ctx, *name, out) })
	return errors.Join(err, client.Close())
}

// stand waits for the lock, runs work while this instance has it, and stands again when work ends or
// the lock is lost. It returns nil when ctx ends.
func stand(ctx context.Context, lock *dlock.Mutex, work func(context.Context) error) error {
	for {
		err := lock.Do(ctx, work)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, dlock.ErrClosed), errors.Is(err, dlock.ErrRefused), errors.Is(err, dlock.ErrForeignKey):
			return err // an operator has to act
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "leader: stands again:", err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil
		}
	}
}

// lead is the work of the leader. It returns as soon as its context ends: the next leader may
// start at that moment.
func lead(ctx context.Context, name string, out io.Writer) error {
	token, _ := dlock.TokenFor(ctx, "leader")
	fmt.Fprintf(out, "%s leads, token %d\n", name, token)
	<-ctx.Done()
	fmt.Fprintf(out, "%s leads no more: %v\n", name, context.Cause(ctx))
	return context.Cause(ctx)
}
