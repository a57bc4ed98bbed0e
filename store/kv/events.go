package kv

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/model"
)

// maxMessage is how long a message between handles may be.
const maxMessage = 4096

// route delivers events to the sinks of this handle and sends the rest to
// theirs. If the step is not certain to last, an event tells its waiter only to
// ask again.
func (s *Store) route(events []model.Event, certain bool) {
	messages := make(map[string][]byte)
	for _, e := range events {
		if !certain {
			e.Event = store.Event{ID: e.ID}
		}
		switch {
		case e.Handle == s.id:
			s.deliver(e.Event)
		case s.notifier != nil:
			line := fmt.Appendf(nil, "%s %d %d\n", e.ID, e.Token, e.Short)
			if m := messages[e.Handle]; len(m)+len(line) > maxMessage {
				s.notifier.Send(e.Handle, m)
				messages[e.Handle] = nil
			}
			messages[e.Handle] = append(messages[e.Handle], line...)
		}
	}
	for handle, m := range messages {
		s.notifier.Send(handle, m)
	}
}

// receive takes a message from another handle. A malformed message means that
// something was lost.
func (s *Store) receive(msg []byte) {
	if msg == nil {
		s.polls.Store(false) // messages arrive from now on
		s.deliver(store.Event{})
		return
	}
	for line := range strings.Lines(string(msg)) {
		e, ok := parse(strings.TrimSuffix(line, "\n"))
		if !ok {
			e = store.Event{}
		}
		s.deliver(e)
	}
}

// parse reads a line of a message.
func parse(line string) (e store.Event, ok bool) {
	fields := strings.Split(line, " ")
	if len(fields) != 3 || fields[0] == "" {
		return e, false
	}
	token, err1 := strconv.ParseUint(fields[1], 10, 64)
	short, err2 := strconv.Atoi(fields[2])
	return store.Event{ID: fields[0], Token: token, Short: short}, err1 == nil && err2 == nil
}

// deliver calls the sinks of this handle. A grant that a handle without messages
// meets in its own step and when it looks is told once.
func (s *Store) deliver(e store.Event) {
	if e.Token != 0 && !s.unwatch(e.ID) {
		return
	}
	s.sinks.Tell(e)
}

// Listen implements [store.Store].
func (s *Store) Listen(sink func(store.Event)) (stop func()) { return s.sinks.Listen(sink) }
