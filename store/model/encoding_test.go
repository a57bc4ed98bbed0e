package model_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/model"
)

// TestEncoding pins the bytes of version 2: stores have them on disk.
func TestEncoding(t *testing.T) {
	s := newSite(t)
	s.now = time.Second
	s.tokens.last = 300
	a := request("a", 1, store.Shared, false)
	a.Tokens = 2
	s.hold(a)
	s.queue(request("b", 1, store.Exclusive, true))
	s.release(request("c", 1, store.Exclusive, true), true)
	got, err := s.record.AppendBinary([]byte("before "))
	const want = "before dlk\x02" +
		"\x01\x03a-1\x01a\x0alabel of a\x0bhandle of a\x01\x02\x80\xd0\xac\xf3\x0e\xad\x02\x00\x80\xb8\xb5\xfa\x51\x80\xa8\xd6\xb9\x07" +
		"\x01\x03b-1\x01b\x0alabel of b\x0bhandle of b\x00\x01\x80\xd0\xac\xf3\x0e\x00\x00\x80\xc8\xaf\xa0\x25\x80\xa8\xd6\xb9\x07" +
		"\x01\x03c-1\x80\xb8\xb5\xfa\x51"
	if err != nil || string(got) != want {
		t.Fatalf("got  %q, %v\nwant %q", got, err, want)
	}
	var r model.Record
	if err := r.UnmarshalBinary([]byte(want)[len("before "):]); err != nil {
		t.Fatal(err)
	}
	again, _ := r.AppendBinary(nil)
	if string(again) != want[len("before "):] {
		t.Errorf("decoded and encoded: got %q", again)
	}
}

// TestVersion1: a record of the version before is read. It does not know since when its
// holds hold and its waiters wait.
func TestVersion1(t *testing.T) {
	s := newSite(t)
	const old = "dlk\x01" +
		"\x01\x03a-1\x01a\x0alabel of a\x0bhandle of a\x01\x02\x80\xd0\xac\xf3\x0e\xad\x02\x00\x80\x90\xdf\xc0\x4a" +
		"\x01\x03b-1\x01b\x0alabel of b\x0bhandle of b\x00\x01\x80\xd0\xac\xf3\x0e\x00\x00\x80\xa0\xd9\xe6\x1d" +
		"\x01\x03c-1\x80\x90\xdf\xc0\x4a"
	if err := s.record.UnmarshalBinary([]byte(old)); err != nil {
		t.Fatal(err)
	}
	s.now = time.Second
	s.call(func(c *model.Call) {
		state := s.record.Inspect(c, "name")
		want := store.State{
			Name: "name", Token: s.tokens.last,
			Holders: []store.Entry{{ID: "a-1", Owner: "a", Mode: store.Shared, Token: 301, Remaining: lease - s.now, Label: "label of a"}},
			Queue:   []store.Entry{{ID: "b-1", Owner: "b", Remaining: 3 * time.Second, Label: "label of b"}},
		}
		if !reflect.DeepEqual(state, want) {
			t.Errorf("got %v, want %v", state, want)
		}
	})
}

// TestForeign: what is no record of a known version is refused and leaves a
// free name.
func TestForeign(t *testing.T) {
	s := newSite(t)
	s.hold(request("a", 1, store.Exclusive, false))
	whole, _ := s.record.AppendBinary(nil)
	foreign := map[string][]byte{
		"nothing":       nil,
		"text":          []byte("a value of another program"),
		"version 0":     append([]byte("dlk\x00"), whole[4:]...),
		"version 3":     append([]byte("dlk\x03"), whole[4:]...),
		"a byte more":   append(bytes.Clone(whole), 0),
		"a long list":   []byte("dlk\x01\xff\xff\xff\xff\x0f"),
		"an odd number": []byte("dlk\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x0f"),
	}
	for n := range whole {
		foreign[fmt.Sprintf("the first %d bytes", n)] = whole[:n]
	}
	for what, b := range foreign {
		var r model.Record
		if err := r.UnmarshalBinary(b); !errors.Is(err, store.ErrForeignKey) || !r.Empty() {
			t.Errorf("%s: got %v, %+v, want ErrForeignKey and a free name", what, err, r)
		}
	}
	var r model.Record
	if err := r.UnmarshalBinary(whole); err != nil || r.Empty() {
		t.Errorf("the whole: got %v", err)
	}
}

// FuzzDecode: no bytes make the decoder panic, and what it accepts it writes
// and reads again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("dlk\x01\x00\x00\x00"))
	f.Add([]byte("dlk\x01\x01\x03a-1\x01a\x00\x00\x01\x02\x03\x04\x00\x05\x00\x01\x03c-1\x06"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r, again model.Record
		if err := r.UnmarshalBinary(b); err != nil {
			if !errors.Is(err, store.ErrForeignKey) {
				t.Fatalf("got %v", err)
			}
			return
		}
		first, _ := r.AppendBinary(nil)
		if err := again.UnmarshalBinary(first); err != nil {
			t.Fatalf("%q was accepted, %q is not: %v", b, first, err)
		}
		second, _ := again.AppendBinary(nil)
		if !bytes.Equal(first, second) {
			t.Fatalf("%q was read and written as %q", first, second)
		}
	})
}

// FuzzCalls runs calls on two records, of which one is encoded and decoded
// after each call. Both answer the same, and holds never conflict.
func FuzzCalls(f *testing.F) {
	f.Add([]byte{0, 1, 2, 9, 17, 33, 4, 65, 130, 7})
	f.Add([]byte("a few calls in some order, and time passes"))
	f.Fuzz(func(t *testing.T, script []byte) {
		kept, stored := newSite(t), newSite(t)
		for i := 0; i+1 < len(script) && i < 400; i += 2 {
			one, two := step(kept, script[i], script[i+1]), step(stored, script[i], script[i+1])
			if one != two {
				t.Fatalf("call %d: kept in memory %s, encoded between calls %s", i/2, one, two)
			}
			conflict(t, kept)
			conflict(t, stored)
			b, _ := stored.record.AppendBinary(nil)
			var fresh model.Record
			if err := fresh.UnmarshalBinary(b); err != nil {
				t.Fatalf("call %d: %q: %v", i/2, b, err)
			}
			stored.record = fresh
		}
	})
}

// step makes one call of the script and returns all that it answers.
func step(s *site, what, who byte) string {
	req := request(string('a'+rune(who%4)), int(who>>2%4), store.Mode(who>>4&1), who>>5&1 == 1)
	req.Tokens = 1 + int(who>>6)
	ref := store.Ref{Owner: req.Owner, ID: req.ID, TTL: lease, Bury: what&8 != 0}
	var answer string
	s.events = nil
	s.call(func(c *model.Call) {
		switch what % 8 {
		case 0, 1, 2:
			g, err := s.record.Acquire(c, req, "handle of "+req.Owner)
			answer = fmt.Sprint(g, err)
		case 3, 4:
			answer = fmt.Sprint(s.record.Release(c, ref))
		case 5:
			answer = fmt.Sprint(s.record.Renew(c, ref))
		case 6:
			if what&16 != 0 {
				answer = fmt.Sprint(s.record.Break(c))
				break
			}
			token, err := s.record.Raise(c, &s.tokens, req.ID, uint64(what), 2)
			answer = fmt.Sprint(token, err)
		case 7:
			s.now += time.Duration(what>>3) * time.Second / 2
		}
		answer += fmt.Sprintf(" %+v last %d", s.record.Inspect(c, "name"), s.tokens.last)
	})
	return answer + fmt.Sprint(s.events)
}

// conflict fails the test if two owners hold though one of them excludes the
// other, or if the head of the queue could be granted.
func conflict(t *testing.T, s *site) {
	s.call(func(c *model.Call) {
		state := s.record.Inspect(c, "name")
		for _, h := range state.Holders {
			for _, other := range state.Holders {
				if h.Owner != other.Owner && (h.Mode == store.Exclusive || other.Mode == store.Exclusive) {
					t.Fatalf("%+v beside %+v", h, other)
				}
			}
			if h.Token == 0 || h.Token > s.tokens.last || h.Remaining <= 0 {
				t.Fatalf("hold %+v, last token %d", h, s.tokens.last)
			}
		}
		if len(state.Holders) == 0 && len(state.Queue) > 0 {
			t.Fatalf("waiters of a free name: %+v", state.Queue)
		}
	})
}

// TestEncodeHold: the record of a request that was granted elsewhere is that of
// Acquire.
func TestEncodeHold(t *testing.T) {
	s := newSite(t)
	s.tokens.left = 2
	req := request("a", 1, store.Shared, false)
	req.Tokens = 5
	s.hold(req)
	want, _ := s.record.AppendBinary(nil)
	if got := model.EncodeHold(nil, req, "handle of a", 1, 3, s.now); string(got) != string(want) {
		t.Errorf("got %q, want %q", got, want)
	}
	got, err := model.CompleteHold(model.EncodeHold(nil, req, "handle of a", 0, 0, 0), 1, 3, s.now, s.now+lease)
	if err != nil || string(got) != string(want) {
		t.Errorf("completed: got %q, %v, want %q", got, err, want)
	}
	s.queue(request("b", 1, store.Exclusive, true))
	two, _ := s.record.AppendBinary(nil)
	for _, template := range [][]byte{nil, two} {
		if _, err := model.CompleteHold(template, 1, 0, 0, lease); !errors.Is(err, store.ErrForeignKey) {
			t.Errorf("%q: got %v, want ErrForeignKey", template, err)
		}
	}
}

// TestCovers: a token is held if a live hold has it, or reserved it.
func TestCovers(t *testing.T) {
	s := newSite(t)
	req := request("a", 1, store.Exclusive, false)
	req.Tokens = 3
	s.hold(req)
	for token, want := range []bool{false, true, true, true, false} {
		if got := s.record.Covers(s.now, uint64(token)); got != want {
			t.Errorf("token %d: got %v, want %v", token, got, want)
		}
	}
	if s.record.Covers(s.now+lease, 1) {
		t.Error("a dead hold covers its token")
	}
}
