package redis

import (
	"hash/crc32"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// partitions is how many hash tags the names are spread over. All keys of a
// name carry the tag of its partition, so a script finds them on one node
// whatever the name contains. It is a constant of the format: all clients of
// one prefix agree on it. More would spread better over large clusters and
// cost each client that waits more subscriptions.
const partitions = 64

// tags are the hash tags of the partitions. The slot of the n-th is within 20 of 256n+128,
// so masters with equal ranges of slots get equal shares of the partitions. Each tag is the
// number of its partition and the first letters that lead there.
var tags = [partitions]string{
	"0pn", "1bv", "2kp", "3iu", "4fa", "5ke", "6bc", "7bfu",
	"8ox", "9ra", "10i", "11bs", "12hx", "13ua", "14ie", "15aal",
	"16if", "17kc", "18d", "19cf", "20ml", "21oi", "22fo", "23dj",
	"24bl", "25oh", "26io", "27kj", "28bg", "29ans", "30fn", "31dk",
	"32gu", "33ep", "34fh", "35dm", "36nf", "37lc", "38fc", "39df",
	"40agx", "41gy", "42qc", "43lz", "44cn", "45w", "46gl", "47ei",
	"48di", "49fl", "50afe", "51be", "52hn", "53jk", "54fr", "55kv",
	"56gn", "57ek", "58ok", "59mn", "60cd", "61aa", "62hg", "63jb",
}

// layout builds key and channel names: prefix:{tag}:kind:name. The tag is
// the first pair of braces because the prefix has none.
type layout struct {
	prefix   string
	start    [partitions]string // "prefix:{tag}:"
	counters [partitions]string // the keys of the last tokens
	names    [known]atomic.Pointer[name]
}

func newLayout(prefix string) *layout {
	l := &layout{prefix: prefix}
	for p := range l.start {
		l.start[p] = prefix + ":{" + tags[p] + "}:"
		l.counters[p] = l.start[p] + "token"
	}
	return l
}

// partition says which partition a name belongs to: its CRC-32 (IEEE) modulo
// their number.
func partition(name string) int { return int(checksum(name) % partitions) }

// checksum is the CRC-32 (IEEE) of a name. [crc32.ChecksumIEEE] would want a copy of it.
func checksum(name string) uint32 {
	crc := ^uint32(0)
	for i := range len(name) {
		crc = crc32.IEEETable[byte(crc)^name[i]] ^ crc>>8
	}
	return ^crc
}

// channel is where a client hears of its requests in the partition.
func (l *layout) channel(p int, client string) string { return l.start[p] + "wake:" + client }

// name is what is kept of a name in use: its keys, in the order of the scripts, and
// whether it is contended.
type name struct {
	text      string
	partition int
	counter   string // the key of the last token of its partition
	lock      string
	order     string

	until   atomic.Int64 // contended until then, in ns since start
	indexed atomic.Bool  // a script has asked for the order
}

// keys are those that a script is called with: the order only if the script has asked
// for it.
func (n *name) keys() []string {
	if n.indexed.Load() {
		return []string{n.counter, n.lock, n.order}
	}
	return []string{n.counter, n.lock}
}

// withKeys calls f with the keys of the name, and once more if a script asks for the order. These are not keys then:
// another call may have found the name free meanwhile.
func (n *name) withKeys(f func(keys []string) error) {
	if replyIs(f(n.keys()), indexedReply) {
		n.indexed.Store(true)
		_ = f(n.all()) // f keeps its error
	}
}

// all are the keys that the renew script wants of each hold.
func (n *name) all() []string { return []string{n.counter, n.lock, n.order} }

// known is how many names a layout remembers. It forgets a name when another one
// with the same place is used.
const known = 4096

// of returns the keys of a name.
func (l *layout) of(text string) *name {
	sum := checksum(text)
	place := &l.names[sum/partitions%known]
	if n := place.Load(); n != nil && n.text == text {
		return n
	}
	p := int(sum % partitions)
	n := &name{text: text, partition: p, counter: l.counters[p], lock: l.start[p] + "lock:" + text, order: l.start[p] + "order:" + text}
	place.Store(n)
	return n
}

// lately is for how long a name counts as contended after the last sign of it. It
// decides only which call of a release is sent first.
const lately = time.Second

// start is when this process began, on the monotonic clock.
var start = time.Now()

// markContended notes that a request met others, or a hold in another form than a lone one.
func (n *name) markContended() { n.until.Store(int64(time.Since(start) + lately)) }

func (n *name) contended() bool {
	until := n.until.Load()
	return until != 0 && time.Since(start) < time.Duration(until)
}

// typeOf is the Redis type of a key of this format, "" for other keys.
func (l *layout) typeOf(key string) string {
	rest, ok := strings.CutPrefix(key, l.prefix+":{")
	tag, rest, found := strings.Cut(rest, "}:")
	p := slices.Index(tags[:], tag)
	if !ok || !found || p < 0 {
		return ""
	}
	if rest == "token" || rest == "life" && p == 0 {
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

// nameOf returns the name whose lock a key is, false for other keys.
func (l *layout) nameOf(key string) (string, bool) {
	rest, ok := strings.CutPrefix(key, l.prefix+":{")
	if !ok {
		return "", false
	}
	tag, name, ok := strings.Cut(rest, "}:lock:")
	if !ok || tag != tags[partition(name)] {
		return "", false
	}
	return name, true
}

var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
