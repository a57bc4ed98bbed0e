package etcd

import "strings"

// maxPrefixLen keeps keys short.
const maxPrefixLen = 128

// layout builds keys: prefix/name/id for a hold or a waiter, and the same with
// an exclamation mark for an id that is buried. Names are escaped, so no name's
// keys begin like another's, whatever bytes it has.
type layout struct{ prefix string }

// dir is what all keys of a name begin with.
func (l layout) dir(name string) string {
	var b strings.Builder
	b.Grow(len(l.prefix) + len(name) + 2)
	b.WriteString(l.prefix)
	b.WriteByte('/')
	for _, c := range []byte(name) {
		if plain(c) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	b.WriteByte('/')
	return b.String()
}

const hexDigits = "0123456789ABCDEF"

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
}

func (l layout) entry(name, id string) string { return l.dir(name) + id }

// tombstone is the key of a buried id.
func tombstone(entry string) string { return entry + "!" }

// name is the inverse of entry and tombstone, false for keys of another form.
func (l layout) name(key string) (string, bool) {
	rest, ok := strings.CutPrefix(key, l.prefix+"/")
	if !ok {
		return "", false
	}
	escaped, _, ok := strings.Cut(rest, "/")
	if !ok || escaped == "" {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(escaped); i++ {
		c := escaped[i]
		switch {
		case plain(c):
			b.WriteByte(c)
		case c == '%' && i+2 < len(escaped):
			high, low := strings.IndexByte(hexDigits, escaped[i+1]), strings.IndexByte(hexDigits, escaped[i+2])
			if high < 0 || low < 0 {
				return "", false
			}
			b.WriteByte(byte(high<<4 | low))
			i += 2
		default:
			return "", false
		}
	}
	return b.String(), true
}
