package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// value is one RESP value as it stood on the wire.
type value struct {
	raw  []byte
	kind byte // '+', '-', '$', '>'...
	// first is the text of the first element of a push or an array, which says
	// what a push is about.
	first string
}

// readValue reads one RESP2 or RESP3 value with all that is nested in it. The
// attributes before a value belong to it.
func readValue(r *bufio.Reader) (value, error) {
	var v value
	err := v.read(r, 0)
	return v, err
}

func (v *value) read(r *bufio.Reader, depth int) error {
	line, err := v.line(r)
	if err != nil {
		return err
	}
	kind, rest := line[0], line[1:]
	if depth == 0 {
		v.kind = kind
	}
	switch kind {
	case '+', '-', ':', '_', ',', '#', '(':
		return nil
	case '$', '=', '!':
		text, err := v.bulk(r, rest)
		if depth == 1 && v.first == "" {
			v.first = text
		}
		return err
	}
	n, err := strconv.Atoi(rest)
	if err != nil {
		return fmt.Errorf("redistest: not RESP: %q", line)
	}
	switch kind {
	case '*', '~', '>':
	case '%':
		n *= 2
	case '|':
		for range 2 * n {
			if err := v.read(r, depth+2); err != nil {
				return err
			}
		}
		return v.read(r, depth)
	default:
		return fmt.Errorf("redistest: not RESP: %q", line)
	}
	for range n { // none for a null array, *-1
		if err := v.read(r, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// line reads a line, which is not empty, and returns it without its end.
func (v *value) line(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	v.raw = append(v.raw, line...)
	text := strings.TrimRight(line, "\r\n")
	if err == nil && text == "" {
		err = errors.New("redistest: not RESP: an empty line")
	}
	return text, err
}

func (v *value) bulk(r *bufio.Reader, length string) (string, error) {
	n, err := strconv.Atoi(length)
	if err != nil {
		return "", fmt.Errorf("redistest: not RESP: a string of length %q", length)
	}
	if n < 0 {
		return "", nil
	}
	at := len(v.raw)
	v.raw = append(v.raw, make([]byte, n+2)...)
	_, err = io.ReadFull(r, v.raw[at:])
	return string(v.raw[at : at+n]), err
}

// readRequest reads one request, an array of strings, and returns it with its
// arguments.
func readRequest(r *bufio.Reader) (raw []byte, args []string, err error) {
	var v value
	line, err := v.line(r)
	if err != nil {
		return nil, nil, err
	}
	n, err := strconv.Atoi(strings.TrimPrefix(line, "*"))
	if err != nil || line[0] != '*' || n < 1 {
		return nil, nil, fmt.Errorf("redistest: not a request: %q", line)
	}
	for range n {
		if line, err = v.line(r); err != nil {
			return nil, nil, err
		}
		if line[0] != '$' {
			return nil, nil, fmt.Errorf("redistest: not an argument: %q", line)
		}
		arg, err := v.bulk(r, line[1:])
		if err != nil {
			return nil, nil, err
		}
		args = append(args, arg)
	}
	return v.raw, args, nil
}
