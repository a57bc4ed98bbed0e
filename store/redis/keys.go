package redis

import (
	"hash/crc32"
	"strconv"
	"strings"
)

// partitions is how many hash tags the names are spread over. All keys of a
// name carry the tag of its partition, so a script finds them on one node
// whatever the name contains. It is a constant of the format: all clients of
// one prefix agree on it. More would spread better over large clusters and
// cost each client that waits more subscriptions.
const partitions = 64

// layout builds key and channel names: prefix:{partition}:kind:name. The tag is
// the first pair of braces because the prefix has none.
type layout struct {
	prefix   string
	start    [partitions]string // "prefix:{p}:"
	counters [partitions]string // the keys of the last tokens
}

func newLayout(prefix string) *layout {
	l := &layout{prefix: prefix}
	for p := range l.start {
		l.start[p] = prefix + ":{" + strconv.Itoa(p) + "}:"
		l.counters[p] = l.start[p] + "token"
	}
	return l
}

// partition says which partition a name belongs to: its CRC-32 (IEEE) modulo
// their number. [crc32.ChecksumIEEE] would want a copy of the name.
func partition(name string) int {
	crc := ^uint32(0)
	for i := range len(name) {
		crc = crc32.IEEETable[byte(crc)^name[i]] ^ crc>>8
	}
	return int(^crc % partitions)
}

// channel is where a client hears of its requests in the partition.
func (l *layout) channel(p int, client string) string { return l.start[p] + "wake:" + client }

// keys are those of the scripts that work on one name, in their order: the counter
// of its partition, its lock, its order.
func (l *layout) keys(name string) []string {
	return l.appendKeys(make([]string, 0, 3), name)
}

func (l *layout) appendKeys(keys []string, name string) []string {
	p := partition(name)
	return append(keys, l.counters[p], l.start[p]+"lock:"+name, l.start[p]+"order:"+name)
}

// typeOf is the Redis type of a key of this format, "" for other keys.
func (l *layout) typeOf(key string) string {
	rest, ok := strings.CutPrefix(key, l.prefix+":{")
	tag, rest, found := strings.Cut(rest, "}:")
	p, err := strconv.Atoi(tag)
	if !ok || !found || err != nil || p < 0 || p >= partitions || l.start[p] != key[:len(key)-len(rest)] {
		return ""
	}
	if rest == "token" {
		return "string"
	}
	kind, name, ok := strings.Cut(rest, ":")
	if !ok || partition(name) != p {
		return ""
	}
	return map[string]string{"lock": "hash", "order": "zset"}[kind]
}

// anyLock is the glob pattern that all lock keys match, and few others.
func (l *layout) anyLock() string {
	return globEscaper.Replace(l.prefix) + ":{*}:lock:*"
}

// name is the inverse of keys for that of a lock, false for other keys.
func (l *layout) name(key string) (string, bool) {
	rest, ok := strings.CutPrefix(key, l.prefix+":{")
	if !ok {
		return "", false
	}
	tag, name, ok := strings.Cut(rest, "}:lock:")
	if !ok || tag != strconv.Itoa(partition(name)) {
		return "", false
	}
	return name, true
}

var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
