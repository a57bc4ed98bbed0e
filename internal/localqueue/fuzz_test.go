package localqueue

import (
	"testing"
)

// maxFuzzWaiters keeps the cost of one input small.
const maxFuzzWaiters = 8

// FuzzQueue has a caller do what the input says: the first byte is the number of
// waiters, the next bytes are their modes and kinds, and each byte after that chooses
// one of the events that can happen.
func FuzzQueue(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte{1, 0, 0})
	f.Add([]byte("\x03\x00\x00\x00\x00\x01\x02\x03\x04\x05\x06\x07\x08"))
	f.Add([]byte("\x04\x01\x01\x01\x01\x00\x00\x00\x00\x02\x02\x05\x09\x0b\x0d"))
	f.Add([]byte("\x05\x00\x01\x01\x02\x03\x00\x00\x00\x00\x00\x03\x11\x07\x13\x17"))
	f.Add([]byte("\x08\x00\x01\x02\x03\x04\x05\x01\x01\x00\x03\x00\x03\x00\x05\x00\x07\x00\x09\x10\x0b\x0c\x20\x31"))
	f.Add([]byte("\x06\x05\x04\x05\x04\x01\x00\x00\x00\x00\x00\x00\x00\xff\xfe\xfd\xfc\xfb\xfa\xf9"))
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) == 0 {
			return
		}
		n := int(input[0]) % (maxFuzzWaiters + 1)
		if input = input[1:]; len(input) < n {
			return
		}
		var who []profile
		for _, b := range input[:n] {
			who = append(who, profiles[int(b)%len(profiles)])
		}
		c := newCaller(who)
		var path []event
		for _, b := range input[n:] {
			list := c.events()
			e := list[int(b)%len(list)]
			path = append(path, e)
			if err := c.do(e); err != nil {
				t.Fatalf("waiters %v, events %v: %v", who, path, err)
			}
		}
	})
}
