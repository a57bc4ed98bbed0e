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
	age := ""
	if e.Age >= time.Millisecond {
		age = fmt.Sprintf(" for %v", e.Age/time.Millisecond*time.Millisecond)
	}
	return fmt.Sprintf("%s%s (owner %s, id %s, %v%s), %v left", e.Label, age, e.Owner, e.ID, e.Mode, token, e.Remaining/time.Millisecond*time.Millisecond)
}

// entryJSON is an Entry with its times in words.
type entryJSON struct {
	ID, Owner string
	Mode      Mode
	Token     uint64 `json:",omitempty"`
	Remaining string
	Label     string
	Age       string `json:",omitempty"`
}

// MarshalJSON writes times in words, as "29s", and no age if it is not known.
func (e Entry) MarshalJSON() ([]byte, error) {
	j := entryJSON{ID: e.ID, Owner: e.Owner, Mode: e.Mode, Token: e.Token, Remaining: e.Remaining.String(), Label: e.Label}
	if e.Age != 0 {
		j.Age = e.Age.String()
	}
	return json.Marshal(j)
}

// UnmarshalJSON is the reverse of MarshalJSON.
func (e *Entry) UnmarshalJSON(text []byte) error {
	var j entryJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	read := Entry{ID: j.ID, Owner: j.Owner, Mode: j.Mode, Token: j.Token, Label: j.Label}
	var err error
	if read.Remaining, err = time.ParseDuration(j.Remaining); err != nil {
		return err
	}
	if j.Age != "" {
		if read.Age, err = time.ParseDuration(j.Age); err != nil {
			return err
		}
	}
	*e = read
	return nil
}
