package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// MarshalText returns what String returns, for JSON.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (m *Mode) UnmarshalText(text []byte) error {
	for _, mode := range []Mode{Exclusive, Shared} {
		if string(text) == mode.String() {
			*m = mode
			return nil
		}
	}
	return fmt.Errorf("store: %q is no mode, want exclusive or shared", text)
}

// String describes the state for people, one entry a line.
func (s State) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q: ", s.Name)
	if len(s.Holders)+len(s.Queue) == 0 {
		b.WriteString("free, ")
	}
	fmt.Fprintf(&b, "last token %d", s.Token)
	for _, e := range s.Holders {
		fmt.Fprintf(&b, "\nheld by %v", e)
	}
	for i, e := range s.Queue {
		fmt.Fprintf(&b, "\n%d. waits: %v", i+1, e)
	}
	return b.String()
}

// String describes one holder or waiter for people.
func (e Entry) String() string {
	token := ""
	if e.Token != 0 {
		token = fmt.Sprintf(", token %d", e.Token)
	}
	return fmt.Sprintf("%s (owner %s, id %s, %v%s), %v left", e.Label, e.Owner, e.ID, e.Mode, token, e.Remaining/time.Millisecond*time.Millisecond)
}

// entryJSON is an Entry with its time in words.
type entryJSON struct {
	ID, Owner string
	Mode      Mode
	Token     uint64 `json:",omitempty"`
	Remaining string
	Label     string
}

// MarshalJSON writes the time that remains in words, as "29s".
func (e Entry) MarshalJSON() ([]byte, error) {
	return json.Marshal(entryJSON{e.ID, e.Owner, e.Mode, e.Token, e.Remaining.String(), e.Label})
}

// UnmarshalJSON is the reverse of MarshalJSON.
func (e *Entry) UnmarshalJSON(text []byte) error {
	var j entryJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	d, err := time.ParseDuration(j.Remaining)
	if err != nil {
		return err
	}
	*e = Entry{j.ID, j.Owner, j.Mode, j.Token, d, j.Label}
	return nil
}
