package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	maxLine     = 4096 // bytes
	maxSKU      = 64   // bytes
	maxQuantity = 1000
)

// order is one line of input.
type order struct {
	ID       string `json:"id"` // shown in messages; may be missing
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
	line     int
}

// readOrders sends the orders that it reads, until the input or ctx ends. Lines
// that are no order go to bad; blank lines are skipped. The error is the input's.
func readOrders(ctx context.Context, input io.Reader, orders chan<- order, bad func(line int, err error)) error {
	in := bufio.NewReaderSize(input, maxLine+2) // and its end, which may be two bytes
	for number := 1; ; number++ {
		line, tooLong, err := nextLine(in)
		if err != nil && err != io.EOF {
			return fmt.Errorf("reading orders, line %d: %w", number, err)
		}
		last := err == io.EOF
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		line = bytes.TrimSpace(line)
		switch {
		case tooLong:
			bad(number, fmt.Errorf("longer than %d bytes", maxLine))
		case len(line) > 0:
			o, err := parseOrder(line)
			if err != nil {
				bad(number, err)
				break
			}
			o.line = number
			select {
			case orders <- o:
			case <-ctx.Done():
				return nil
			}
		}
		if last || ctx.Err() != nil {
			return nil
		}
	}
}

// nextLine returns the next line. A longer one than the buffer is skipped whole.
func nextLine(in *bufio.Reader) (line []byte, tooLong bool, err error) {
	line, err = in.ReadSlice('\n')
	for err == bufio.ErrBufferFull {
		tooLong = true
		_, err = in.ReadSlice('\n')
	}
	return line, tooLong || len(bytes.TrimRight(line, "\r\n")) > maxLine, err
}

func parseOrder(line []byte) (order, error) {
	var o order
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("unfinished JSON")
		}
		return o, err
	}
	if _, err := d.Token(); err != io.EOF {
		return o, errors.New("something follows the order")
	}
	switch {
	case o.SKU == "":
		return o, errors.New("sku is missing")
	case len(o.SKU) > maxSKU:
		return o, fmt.Errorf("sku has %d bytes, at most %d are allowed", len(o.SKU), maxSKU)
	case o.Quantity < 1 || o.Quantity > maxQuantity:
		return o, fmt.Errorf("quantity is %d, want 1 to %d", o.Quantity, maxQuantity)
	}
	return o, nil
}
