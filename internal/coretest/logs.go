package coretest

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// Logs is a log handler that keeps the records.
type Logs struct {
	mu      sync.Mutex
	records []Record
}

// Record is one record of [Logs].
type Record struct {
	Level   slog.Level
	Message string
	At      time.Time // when the handler got it
	Attrs   map[string]slog.Value
}

// Enabled implements [slog.Handler].
func (l *Logs) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements [slog.Handler].
func (l *Logs) Handle(_ context.Context, r slog.Record) error {
	kept := Record{Level: r.Level, Message: r.Message, At: time.Now(), Attrs: make(map[string]slog.Value)}
	r.Attrs(func(a slog.Attr) bool {
		kept.Attrs[a.Key] = a.Value
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, kept)
	return nil
}

// WithAttrs implements [slog.Handler]. The attributes are not kept.
func (l *Logs) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements [slog.Handler]. The group is not kept.
func (l *Logs) WithGroup(string) slog.Handler { return l }

// Of returns the records of that level whose message contains text, in any case of letters.
func (l *Logs) Of(level slog.Level, text string) []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.records), func(r Record) bool {
		return r.Level != level || !strings.Contains(strings.ToLower(r.Message), strings.ToLower(text))
	})
}
