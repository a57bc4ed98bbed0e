package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store/memory"
)

// newClient is what a program does once at its start; with Redis or etcd only
// the store is another one.
func newClient() *dlock.Client {
	client, err := dlock.New(memory.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	return client
}

// Do is the main use: it locks, calls the function and unlocks. The context
// that the function gets is cancelled should the lock be lost.
func Example() {
	client := newClient()
	defer client.Close()

	stock := 3
	err := client.Mutex("sku/4711").Do(context.Background(), func(ctx context.Context) error {
		stock--
		return nil
	})
	fmt.Println(stock, err)
	// Output: 2 <nil>
}

// Functions that take the same lock may call each other, as long as each hands
// on the context that it got inside.
func ExampleMutex_Do_nested() {
	client := newClient()
	defer client.Close()
	lock := client.Mutex("sku/4711")

	repository := func(ctx context.Context) error {
		hold, err := lock.LockContext(ctx)
		if err != nil {
			return err
		}
		defer hold.Unlock()
		fmt.Println("repository: held", hold.Count(), "times")
		return nil
	}
	service := func(ctx context.Context) error { return lock.Do(ctx, repository) }
	handler := func(ctx context.Context) error { return lock.Do(ctx, service) }

	fmt.Println(handler(context.Background()))
	// Output:
	// repository: held 3 times
	// <nil>
}

// A Mutex is a sync.Locker, so it fits where a sync.Mutex was. Like that, it
// does not nest, and goroutines that share it exclude each other.
func ExampleMutex_Lock() {
	client := newClient()
	defer client.Close()

	var mu sync.Locker = client.Mutex("counter") // was: new(sync.Mutex)
	var wg sync.WaitGroup
	counter := 0
	for range 100 {
		wg.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			counter++
		})
	}
	wg.Wait()
	fmt.Println(counter)
	// Output: 100
}

// As gives a sync.Locker that nests: it locks for one owner each time.
func ExampleMutex_As() {
	client := newClient()
	defer client.Close()

	mu := client.Mutex("counter").As(dlock.NewOwner())
	mu.Lock()
	mu.Lock()
	fmt.Println("twice")
	mu.Unlock()
	mu.Unlock()
	// Output: twice
}

// A job that some process should do, but only one: who finds the lock busy
// leaves it to the other.
func ExampleMutex_TryLockContext() {
	ctx := context.Background()
	client := newClient()
	defer client.Close()

	report := client.Mutex("nightly-report")

	hold, err := report.TryLockContext(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = report.TryLockContext(ctx) // another process, at the same time
	fmt.Println("busy:", errors.Is(err, dlock.ErrHeld))
	fmt.Println(err)
	fmt.Println(hold.Unlock())
	// Output:
	// busy: true
	// dlock: trylock "nightly-report": lock is held by another owner
	// <nil>
}

// A writer that goes on as a reader, without letting another writer in between:
// it takes the reader's lock under its own writer's lock and unlocks that first.
func ExampleRWMutex_downgrade() {
	ctx := context.Background()
	client := newClient()
	defer client.Close()
	config := client.RWMutex("config")

	write, err := config.LockContext(ctx)
	if err != nil {
		log.Fatal(err)
	}
	read, err := config.RLockContext(write.Context(ctx))
	if err != nil {
		log.Fatal(err)
	}
	if err := write.Unlock(); err != nil {
		log.Fatal(err)
	}

	fmt.Println("another reader:", config.TryRLock())
	fmt.Println("another writer:", config.TryLock())

	config.RUnlock()
	if err := read.Unlock(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("a writer afterwards:", config.TryLock())
	// Output:
	// another reader: true
	// another writer: false
	// a writer afterwards: true
}

// An explicit owner crosses to another service in a header, and the lock that
// the caller holds can be taken again there. Its text is a capability: send it
// only to services that may act for the caller.
func ExampleParseOwner() {
	shared := memory.New()
	shop, _ := dlock.New(shared, nil)             // one process,
	warehouse, _ := dlock.New(shared.Peer(), nil) // and another
	defer shop.Close()
	defer warehouse.Close()

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		owner, err := dlock.ParseOwner(r.Header.Get("Lock-Owner"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		err = warehouse.Mutex("sku/4711").Do(dlock.WithOwner(r.Context(), owner), func(context.Context) error {
			fmt.Println("warehouse: holds it too")
			return nil
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	defer server.Close()

	owner := dlock.NewOwner()
	ctx := dlock.WithOwner(context.Background(), owner)
	err := shop.Mutex("sku/4711").Do(ctx, func(ctx context.Context) error {
		fmt.Println("shop: holds it")
		req, err := http.NewRequestWithContext(ctx, "POST", server.URL, nil)
		if err != nil {
			return err
		}
		req.Header.Set("Lock-Owner", owner.String())
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		fmt.Println("warehouse:", resp.Status)
		return resp.Body.Close()
	})
	fmt.Println(err)
	// Output:
	// shop: holds it
	// warehouse: holds it too
	// warehouse: 200 OK
	// <nil>
}

// Goroutines with one context are one owner. Where they should exclude each
// other, each gets an owner of its own.
func ExampleWithOwner() {
	client := newClient()
	defer client.Close()
	lock := client.Mutex("sku/4711")

	err := lock.Do(context.Background(), func(ctx context.Context) error {
		if same, err := lock.TryLockContext(ctx); err == nil {
			fmt.Println("the same owner: held", same.Count(), "times")
			same.Unlock()
		}
		_, err := lock.TryLockContext(dlock.WithOwner(ctx, dlock.NewOwner()))
		fmt.Println("another owner:", errors.Is(err, dlock.ErrHeld))
		return nil
	})
	fmt.Println(err)
	// Output:
	// the same owner: held 2 times
	// another owner: true
	// <nil>
}

// account refuses whoever comes with an older lock than it has seen.
type account struct {
	seen    uint64
	balance int
}

func (a *account) set(token uint64, balance int) error {
	if token < a.seen {
		return errors.New("stale token")
	}
	a.seen, a.balance = token, balance
	return nil
}

// The token goes with each access to what the lock protects, here after the
// lock was lost to someone else without its holder having looked. Reads should
// carry it too.
func ExampleHold_Token() {
	ctx := context.Background()
	client := newClient()
	defer client.Close()
	lock := client.Mutex("account/1", dlock.WithTTL(time.Second), dlock.WithoutRenewal())
	var account account

	stopped, err := lock.LockContext(ctx)
	if err != nil {
		log.Fatal(err)
	}
	next, err := lock.LockContext(ctx) // waits until the lease has run out
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("next:", account.set(next.Token(), 100))
	fmt.Println("stopped:", account.set(stopped.Token(), 50))
	fmt.Println("balance:", account.balance)
	// Output:
	// next: <nil>
	// stopped: stale token
	// balance: 100
}

// A job runner holds the lock for as long as the job takes and stops the job
// when the lock is lost. Here MaxHold takes it away from a job that hangs.
func ExampleHold_Done() {
	lost := make(chan string)
	client, err := dlock.New(memory.New(), &dlock.Options{
		MaxHold: 100 * time.Millisecond,
		OnLost:  func(h *dlock.Hold) { lost <- h.Name() }, // for an alarm
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	hold, err := client.Mutex("job/backup").LockContext(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	finished := make(chan struct{}) // never closed, for this job hangs
	select {
	case <-finished:
		fmt.Println("finished")
	case <-hold.Done():
		fmt.Println("stopped:", hold.Err())
	}
	fmt.Println("told:", <-lost)
	fmt.Println(hold.Unlock())
	// Output:
	// stopped: lock is lost
	// told: job/backup
	// dlock: unlock "job/backup": lock is lost
}

// Without renewal a lock is for one lease, whether its holder lives or not:
// here, to do a thing at most once in a while over all processes.
func ExampleWithoutRenewal() {
	ctx := context.Background()
	client := newClient()
	defer client.Close()
	lock := client.Mutex("mail/hourly", dlock.WithTTL(2*time.Second), dlock.WithoutRenewal())

	hold, err := lock.TryLockContext(ctx) // and not unlocked before it is over
	fmt.Println("sent:", err == nil)

	_, err = lock.TryLockContext(ctx)
	fmt.Println("too early:", errors.Is(err, dlock.ErrHeld))

	<-hold.Done()
	fmt.Println("over:", hold.Err())
	hold.Unlock() // so that the client forgets it; says ErrLost, which was meant
	// Output:
	// sent: true
	// too early: true
	// over: lock is lost
}

// A second reader's lock for the same owner is a re-entry; a writer's lock
// under it is an upgrade, which works as long as nobody else reads.
func ExampleRWMutex_RDo() {
	client := newClient()
	defer client.Close()
	config := client.RWMutex("config")

	err := config.RDo(context.Background(), func(ctx context.Context) error {
		return config.Do(ctx, func(context.Context) error {
			fmt.Println("writes alone")
			return nil
		})
	})
	fmt.Println(err)

	config.RLock() // someone else reads
	err = config.RDo(context.Background(), func(ctx context.Context) error {
		return config.Do(ctx, func(context.Context) error { return nil })
	})
	fmt.Println(errors.Is(err, dlock.ErrUpgrade))
	// Output:
	// writes alone
	// <nil>
	// true
}
