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

// newClient is what a program does once, at its start. Only the store differs with Redis or etcd.
func newClient() *dlock.Client {
	client, err := dlock.New(memory.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	return client
}

// Do locks, calls the function and unlocks. The context of the function is cancelled if the lock
// is lost.
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

// Functions that take the same lock may call each other, as long as each passes on the context
// that it got.
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

// A Mutex is a sync.Locker, so it can replace a sync.Mutex. Like a sync.Mutex it does not nest, and
// goroutines that share it exclude each other.
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

// As returns a sync.Locker that nests, because it always locks for the same owner.
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

// One process of several does a job. A process that finds the lock busy leaves the job to the other.
func ExampleMutex_TryLockContext() {
	ctx := context.Background()
	locks := memory.New()
	client, err := dlock.New(locks, &dlock.Options{Label: "web-3"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	another, err := dlock.New(locks.Peer(), &dlock.Options{Label: "web-4"}) // in another process
	if err != nil {
		log.Fatal(err)
	}
	defer another.Close()

	report := client.Mutex("nightly-report")

	hold, err := report.TryLockContext(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = another.Mutex("nightly-report").TryLockContext(ctx)
	fmt.Println("busy:", errors.Is(err, dlock.ErrHeld))
	fmt.Println(err)
	fmt.Println(hold.Unlock())
	// Output:
	// busy: true
	// dlock: trylock "nightly-report": lock is held by another owner: held by web-3
	// <nil>
}

// A writer goes on as a reader, and no other writer gets the lock between. It takes the reader's
// lock under its own writer's lock, and then unlocks the writer's lock.
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

// An explicit owner travels to another service in a header. The service can take the lock that the
// caller holds. The text of an owner is a capability: send it only to services that may act for
// the caller.
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

// Goroutines with one context are one owner. To exclude each other, each needs its own owner.
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

// account refuses tokens lower than the highest that it has seen.
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

// Send the token with each access to the protected resource, reads too. Here the first holder has
// lost the lock without noticing, and the resource refuses its token.
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

// A job runner holds the lock while the job runs, and stops the job when the lock is lost. Here
// MaxHold ends the hold of a job that hangs.
func ExampleHold_Done() {
	lost := make(chan string)
	client, err := dlock.New(memory.New(), &dlock.Options{
		MaxHold: 100 * time.Millisecond,
		OnLost:  func(h *dlock.Hold) { lost <- h.Name() }, // send an alarm
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	hold, err := client.Mutex("job/backup").LockContext(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	finished := make(chan struct{}) // never closed, because this job hangs
	select {
	case <-finished:
		fmt.Println("finished")
	case <-hold.Done():
		fmt.Println("stopped:", hold.Err())
	}
	fmt.Println("lost:", <-lost)
	fmt.Println(hold.Unlock())
	// Output:
	// stopped: lock is lost: MaxHold reached
	// lost: job/backup
	// dlock: unlock "job/backup": lock is lost: MaxHold reached
}

// Without renewal a lock lasts for one lease, also if its holder dies. Here all processes together
// send at most one mail in that time.
func ExampleWithoutRenewal() {
	ctx := context.Background()
	client := newClient()
	defer client.Close()
	lock := client.Mutex("mail/hourly", dlock.WithTTL(2*time.Second), dlock.WithoutRenewal())

	hold, err := lock.TryLockContext(ctx) // not unlocked before its end
	fmt.Println("sent:", err == nil)

	_, err = lock.TryLockContext(ctx)
	fmt.Println("too early:", errors.Is(err, dlock.ErrHeld))

	<-hold.Done()
	fmt.Println("over:", hold.Err())
	hold.Unlock() // returns ErrLost as expected, and lets the client forget the hold
	// Output:
	// sent: true
	// too early: true
	// over: lock is lost: its lease ran out and is not renewed
}

// Under its reader's lock an owner may take the writer's lock. That upgrade works only if no other
// owner reads.
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

	config.RLock() // another owner reads
	err = config.RDo(context.Background(), func(ctx context.Context) error {
		return config.Do(ctx, func(context.Context) error { return nil })
	})
	fmt.Println(errors.Is(err, dlock.ErrUpgrade))
	// Output:
	// writes alone
	// <nil>
	// true
}
