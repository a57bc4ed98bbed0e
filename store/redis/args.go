package redis

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/store"
)

// What the scripts are called with. Each argument costs the server as much as a
// third of a command, so what is stored together travels together.

// acquireArgs are the arguments of the acquire script.
func (s *Store) acquireArgs(req store.Request) []string {
	mode := "x "
	if req.Mode == store.Shared {
		mode = "s "
	}
	return []string{req.ID, mode + req.Owner + " " + escape(req.Label), s.texts.millis(req.TTL), s.texts.place(req)}
}

// releaseArgs are the arguments of the release script.
func releaseArgs(ref store.Ref) []string {
	bury := "0"
	if ref.Bury {
		bury = millis(ref.TTL)
	}
	return []string{ref.ID, bury}
}

// texts has the texts of arguments that seldom change.
type texts struct {
	client string
	ttl    atomic.Pointer[durationText]
	last   atomic.Pointer[placeText]
}

type durationText struct {
	d    time.Duration
	text string
}

type placeText struct {
	tokens int
	wait   time.Duration // 0: no place
	text   string
}

func (t *texts) millis(d time.Duration) string {
	if last := t.ttl.Load(); last != nil && last.d == d {
		return last.text
	}
	text := millis(d)
	t.ttl.Store(&durationText{d, text})
	return text
}

// place is the number of tokens that a request asks for, a space, and if it queues for
// how long its place lasts and which client waits in it.
func (t *texts) place(req store.Request) string {
	wait := req.WaitTTL
	if !req.Queue {
		wait = 0
	}
	if last := t.last.Load(); last != nil && last.tokens == req.Tokens && last.wait == wait {
		return last.text
	}
	text := strconv.Itoa(req.Tokens) + " "
	if req.Queue {
		text += millis(wait) + " " + t.client
	}
	t.last.Store(&placeText{req.Tokens, wait, text})
	return text
}

// millis is d in whole milliseconds, never less: a lease may last longer than
// asked for but not shorter.
func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

// escape writes the control characters of a label, and %, as %XX: in the server's
// data a newline ends a record.
func escape(label string) string {
	if !strings.ContainsFunc(label, escaped) {
		return label
	}
	var b strings.Builder
	for i := range len(label) {
		if c := label[i]; escaped(rune(c)) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func escaped(r rune) bool { return r < ' ' || r == '%' || r == 0x7f }

// unescape is the inverse of escape. What escape did not write stays as it is.
func unescape(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if c, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
