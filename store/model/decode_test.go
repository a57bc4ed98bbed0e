package model_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/model"
)

// Bytes that a decoder without its checks would take for a record.
func TestMalformed(t *testing.T) {
	const hold = "\x01\x03a-1\x01a\x00\x00"
	const rest = "\x00\x00\x14\x02\x00\x00" // short, deadline, since; no waiter, no buried id; deadline 10
	good := "dlk\x02" + hold + "\x00\x01\x08\x07" + rest[:1] + "\x14\x02" + "\x00\x00"
	var r model.Record
	if err := r.UnmarshalBinary([]byte(good)); err != nil || r.Empty() {
		t.Fatalf("the sound record: got %v, %+v", err, r)
	}
	const huge = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" // the greatest uint64
	malformed := map[string]string{
		"a list longer than the bytes":   "dlk\x02\x09\x00\x00",
		"a text longer than the bytes":   strings.Replace(good, "\x03a-1", "\x7fa-1", 1),
		"an unknown mode":                strings.Replace(good, "\x00\x01\x08\x07", "\x02\x01\x08\x07", 1),
		"more tokens than an int":        strings.Replace(good, "\x01\x08\x07", huge+"\x08\x07", 1),
		"a WaitTTL beyond a duration":    strings.Replace(good, "\x08\x07", huge+"\x07", 1),
		"a list that ends after an item": "dlk\x02\x03" + good[5:],
	}
	for what, b := range malformed {
		var r model.Record
		if err := r.UnmarshalBinary([]byte(b)); !errors.Is(err, store.ErrForeignKey) || !r.Empty() {
			t.Errorf("%s: got %v, %+v, want ErrForeignKey and a free name", what, err, r)
		}
	}
}

// A record that is used for another name keeps nothing of the first.
func TestDecodeIntoUsedRecord(t *testing.T) {
	s := newSite(t)
	s.hold(request("a", 1, store.Exclusive, false))
	s.queue(request("b", 1, store.Exclusive, true))
	s.release(request("c", 1, store.Exclusive, true), true)
	one, _ := s.record.AppendBinary(nil)
	if err := s.record.UnmarshalBinary(one); err != nil {
		t.Fatal(err)
	}
	if again, _ := s.record.AppendBinary(nil); string(again) != string(one) {
		t.Errorf("got %q, want %q", again, one)
	}
	if err := s.record.UnmarshalBinary([]byte("another program's")); err == nil || !s.record.Empty() {
		t.Errorf("got %v, %+v, want an error and a free name", err, s.record)
	}
}
