package redis

import (
	"context"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/store"
)

// LockKey is the key of a name's lock.
func LockKey(name string) string { return newLayout("dlock").of(name).lock }

// Slot is the cluster slot of a key with a hash tag: CRC-16 (XMODEM) of the tag
// modulo 16384, as in the Redis Cluster specification.
func Slot(key string) int {
	_, tag, _ := strings.Cut(key, "{")
	tag, _, _ = strings.Cut(tag, "}")
	var crc uint16
	for _, b := range []byte(tag) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}

// AcquireCommand is the command that s sends for a request.
func AcquireCommand(c rueidis.Client, s *Store, req store.Request) rueidis.Completed {
	n := s.keys.of(req.Name)
	return s.scripts.acquire.bySHA(c, n.keys(), s.acquireArgs(req))
}

// QuickAcquire is AcquireCommand with a script that ends before it defines the functions of token.lua.
func QuickAcquire(c rueidis.Client, s *Store, req store.Request) rueidis.Completed {
	n := s.keys.of(req.Name)
	text, _, _ := strings.Cut(s.scripts.acquire.text, "local find_text")
	return (&script{text: text}).byText(c, n.keys(), s.acquireArgs(req))
}

// ReleaseCommand is the command that s sends for the release of a lone hold.
func ReleaseCommand(c rueidis.Client, s *Store, ref store.Ref) rueidis.Completed {
	return deleteLone(c, s.keys.of(ref.Name), ref.ID)
}

// ListenEverywhere subscribes s to the events of all partitions, and returns when the server has
// answered.
func ListenEverywhere(ctx context.Context, s *Store, d time.Duration) error {
	var tried []<-chan struct{}
	for p := range partitions {
		if c := s.wakeups.listening(p, d); c != nil {
			tried = append(tried, c)
		}
	}
	for _, c := range tried {
		select {
		case <-c:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// ForgetForm has s take a name for one that is not indexed, as a reply that found it free does.
func ForgetForm(s *Store, name string) { s.keys.of(name).indexed.Store(false) }
