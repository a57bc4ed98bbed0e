package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// dirStock is a stock that several processes share. It is a directory with a file for each article,
// whose last line is its row, and sales.jsonl with a line for each sale. A line is appended with one
// write, so no process reads half a row. A second run goes on with what the first has left.
//
// The fence has a gap here: checking the token and writing are two steps. A database does both in
// one, as in UPDATE ... WHERE token <= ?.
type dirStock struct {
	dir     string
	initial int
}

type sale struct {
	SKU   string `json:"sku"`
	Units int    `json:"units"`
}

// openDirStock opens dir, which has to be empty if fresh is true.
func openDirStock(dir string, initial int, fresh bool) (*dirStock, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	if fresh && len(entries) > 0 {
		return nil, fmt.Errorf("-stock-dir %s is not empty: tokens of the memory store start again at 1, so its stock must be new", dir)
	}
	return &dirStock{dir, initial}, nil
}

func (s *dirStock) salesFile() string { return filepath.Join(s.dir, "sales.jsonl") }

func (s *dirStock) skuFile(sku string) string {
	return filepath.Join(s.dir, "sku-"+url.PathEscape(sku)+".jsonl")
}

func (s *dirStock) row(sku string) (row, error) {
	r := row{Initial: s.initial, Left: s.initial}
	line, err := lastLine(s.skuFile(sku))
	if err != nil || line == nil {
		return r, err
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("%s: %w", s.skuFile(sku), err)
	}
	return r, nil
}

func (s *dirStock) read(sku string, token uint64) (left int, err error) {
	r, err := s.row(sku)
	if err != nil {
		return 0, err
	}
	seen := r.Token
	if err := r.see(sku, token); err != nil {
		return 0, err
	}
	if r.Token > seen {
		err = appendLine(s.skuFile(sku), r)
	}
	return r.Left, err
}

func (s *dirStock) write(sku string, left int, token uint64) error {
	r, err := s.row(sku)
	if err != nil {
		return err
	}
	if err := r.see(sku, token); err != nil {
		return err
	}
	r.Left = left
	return appendLine(s.skuFile(sku), r)
}

func (s *dirStock) book(sku string, units int) error {
	return appendLine(s.salesFile(), sale{sku, units})
}

// audit counts what all processes have sold so far.
func (s *dirStock) audit() (books, error) {
	data, err := os.ReadFile(s.salesFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return books{}, err
	}
	sold := make(map[string]int)
	for line := range bytes.Lines(data) {
		var one sale
		if err := json.Unmarshal(line, &one); err != nil {
			return books{}, fmt.Errorf("%s: %w", s.salesFile(), err)
		}
		sold[one.SKU] += one.Units
	}

	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return books{}, err
	}
	var b books
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), "sku-")
		if !ok {
			continue
		}
		sku, err := url.PathUnescape(strings.TrimSuffix(name, ".jsonl"))
		if err != nil {
			return books{}, err
		}
		r, err := s.row(sku)
		if err != nil {
			return books{}, err
		}
		b.add(r.Initial, sold[sku])
	}
	return b, nil
}

func appendLine(file string, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// lastLine returns the last whole line of a file of short lines; nil if there
// is no such file or line.
func lastLine(file string) ([]byte, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	tail := make([]byte, min(size, 512))
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil && err != io.EOF {
		return nil, err
	}
	end := bytes.LastIndexByte(tail, '\n')
	if end < 0 {
		return nil, nil
	}
	return tail[bytes.LastIndexByte(tail[:end], '\n')+1 : end], nil
}
