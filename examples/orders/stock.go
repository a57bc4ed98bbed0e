package main

import (
	"fmt"
	"strings"
	"sync"
)

// stock is the resource that the lock protects. Each method is safe for concurrent use. Only the
// lock keeps another order from coming between a read and the write after it.
type stock interface {
	// read returns what is left of an article and remembers token.
	read(sku string, token uint64) (left int, err error)
	// write sets what is left. Like read it refuses, with an error, a token
	// lower than one it has seen; token 0 is not checked (-unsafe).
	write(sku string, left int, token uint64) error
	// book notes a sale.
	book(sku string, units int) error
	// audit compares what was booked with what there was.
	audit() (books, error)
}

// books are the outcome, over all articles.
type books struct {
	initial  int // units there were
	sold     int // units booked as sold
	oversold int // units sold that there were not
}

func (b *books) add(initial, sold int) {
	b.initial += initial
	b.sold += sold
	b.oversold += max(0, sold-initial)
}

// openStock opens the stock in a directory, or a new one in memory without one.
func openStock(cfg config) (stock, error) {
	if cfg.stockDir != "" {
		forgetful := !cfg.unsafe && strings.HasPrefix(cfg.store, "memory:")
		return openDirStock(cfg.stockDir, cfg.stock, forgetful)
	}
	return newMemoryStock(cfg.stock), nil
}

// row is the stock of one article.
type row struct {
	Initial int    `json:"initial"`
	Left    int    `json:"left"`
	Token   uint64 `json:"token"` // the highest seen
}

// see is the fence: it refuses a token lower than the greatest it has seen.
func (r *row) see(sku string, token uint64) error {
	if token == 0 {
		return nil
	}
	if token < r.Token {
		return fmt.Errorf("stock of %q: token %d is stale, %d was seen", sku, token, r.Token)
	}
	r.Token = token
	return nil
}

// memoryStock is the stock of one process.
type memoryStock struct {
	initial int
	mu      sync.Mutex
	rows    map[string]*row
	sold    map[string]int
}

func newMemoryStock(initial int) *memoryStock {
	return &memoryStock{initial: initial, rows: make(map[string]*row), sold: make(map[string]int)}
}

func (s *memoryStock) row(sku string) *row {
	if s.rows[sku] == nil {
		s.rows[sku] = &row{Initial: s.initial, Left: s.initial}
	}
	return s.rows[sku]
}

func (s *memoryStock) read(sku string, token uint64) (left int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.row(sku)
	return r.Left, r.see(sku, token)
}

func (s *memoryStock) write(sku string, left int, token uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.row(sku)
	if err := r.see(sku, token); err != nil {
		return err
	}
	r.Left = left
	return nil
}

func (s *memoryStock) book(sku string, units int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sold[sku] += units
	return nil
}

func (s *memoryStock) audit() (books, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b books
	for sku, r := range s.rows {
		b.add(r.Initial, s.sold[sku])
	}
	return b, nil
}
