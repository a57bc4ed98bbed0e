package main

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
)

var errSoldOut = errors.New("sold out")

// lockOf is the lock of one article. Each layer takes it for itself.
func lockOf(client *dlock.Client, sku string) *dlock.Mutex { return client.Mutex("sku/" + sku) }

// routes is the first layer. It takes the lock and turns errors into answers.
func routes(client *dlock.Client, stock *stock, wait time.Duration) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /reserve/{sku}", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		sku := r.PathValue("sku")
		err := lockOf(client, sku).Do(ctx, func(ctx context.Context) error { return reserve(ctx, client, stock, sku) })
		switch {
		case err == nil:
			w.WriteHeader(http.StatusNoContent)
		case errors.Is(err, errSoldOut):
			http.Error(w, "sold out", http.StatusGone)
		case errors.Is(err, dlock.ErrUnavailable), errors.Is(err, dlock.ErrLost),
			errors.Is(err, dlock.ErrTooManyWaiters), errors.Is(err, dlock.ErrClosed):
			w.Header().Set("Retry-After", "1")
			http.Error(w, "locks are not available", http.StatusServiceUnavailable)
		case errors.Is(err, context.DeadlineExceeded):
			http.Error(w, "busy", http.StatusConflict)
		default:
			http.Error(w, "internal error", http.StatusInternalServerError)
		}
	})
	return mux
}

// reserve is the second layer, the business rules. Under routes its lock is a re-entry. Another
// caller, such as a job, may call it without a lock.
func reserve(ctx context.Context, client *dlock.Client, stock *stock, sku string) error {
	return lockOf(client, sku).Do(ctx, func(ctx context.Context) error {
		return stock.take(ctx, client, sku)
	})
}

const units = 10 // of each article

// stock is the third layer. It stands for a database without transactions: each access is safe
// by itself, and the lock makes a read and the write after it one.
type stock struct {
	work time.Duration
	mu   sync.Mutex
	sold map[string]int
}

func newStock(work time.Duration) *stock { return &stock{work: work, sold: make(map[string]int)} }

// take reads, works and writes, so it needs the lock.
func (s *stock) take(ctx context.Context, client *dlock.Client, sku string) error {
	hold, err := lockOf(client, sku).LockContext(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock() // a loss is reported by the Do around it
	left := s.read(sku)
	if left == 0 {
		return errSoldOut
	}
	select {
	case <-time.After(s.work):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.write(sku, left-1)
	return nil
}

func (s *stock) read(sku string) (left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return units - s.sold[sku]
}

func (s *stock) write(sku string, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sold[sku] = units - left
}
