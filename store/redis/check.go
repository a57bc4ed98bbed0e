package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/store"
)

// Warning is something about a server that will cost locks, now or later.
type Warning struct {
	Topic string // version, eviction, role, replicas, persistence, rights, foreign data, unreachable or unchecked
	Node  string // the server's address; empty if it is about all
	Text  string // what is wrong and what to do
}

// String returns all of it in one line.
func (w Warning) String() string {
	if w.Node == "" {
		return w.Topic + ": " + w.Text
	}
	return w.Topic + " (" + w.Node + "): " + w.Text
}

// Check looks at the servers for what endangers locks: version, an eviction
// policy that may drop them, a replica where a master should be, missing
// replicas and persistence, missing rights of the user, foreign data under the
// prefix. It returns a warning for each thing that it finds, none if all is
// well. What it has no right to look at is named by a warning of topic unchecked, but
// for settings: advice that rests on one which it may not read is left out.
//
// It is for the start of a program, or for an operator: it takes and releases a
// lock of a random name, and reads up to 100,000 key names of each node. It
// blocks until done or ctx ends.
func (s *Store) Check(ctx context.Context) []Warning {
	if err := s.ready(ctx); err != nil {
		return []Warning{{Topic: "unreachable", Text: err.Error()}}
	}
	k := &checkup{s: s, ctx: ctx}
	for address, node := range s.client.Nodes() {
		k.node = address
		k.server(node)
	}
	k.node = ""
	k.rights()
	return k.found
}

// checkup is one run of Check.
type checkup struct {
	s     *Store
	ctx   context.Context
	node  string
	found []Warning
}

func (k *checkup) warn(topic, format string, args ...any) {
	k.found = append(k.found, Warning{topic, k.node, fmt.Sprintf(format, args...)})
}

// info is what INFO says.
type info string

// field returns the value of a field, "" if there is none.
func (in info) field(name string) string {
	_, rest, _ := strings.Cut(string(in), "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r")
	return value
}

func (k *checkup) server(node rueidis.Client) {
	text, err := askNode(k.ctx, node, node.B().Info().Build()).ToString()
	switch {
	case replyIs(err, "NOPERM"):
		k.warn("unchecked", "no right to INFO: version, role, eviction, persistence, replicas and foreign data are unknown")
		return
	case err != nil:
		k.warn("unreachable", "%v", err)
		return
	}
	in := info(text)
	k.version(in)
	k.role(in)
	if in.field("role") != "master" {
		return // the rest matters where locks are kept
	}
	k.eviction(in)
	k.persistence(node, in)
	k.replicas(node, in)
	k.foreign(node)
}

func (k *checkup) version(in info) {
	if v := in.field("redis_version"); !atLeast7(v) {
		k.warn("version", "this is %s; Redis 7.0 or newer is required", v)
	}
}

func (k *checkup) role(in info) {
	if in.field("role") != "master" && k.s.client.Mode() != rueidis.ClientModeCluster {
		k.warn("role", "this is a replica and refuses locks; connect to the master, or to the sentinels with master_set")
	}
}

func (k *checkup) eviction(in info) {
	policy := in.field("maxmemory_policy")
	if policy == "noeviction" {
		return
	}
	when := "when memory is full"
	if in.field("maxmemory") == "0" {
		when = "once maxmemory is set, which it is not"
	}
	k.warn("eviction", "maxmemory-policy is %s, which drops locks %s; set noeviction", policy, when)
}

func (k *checkup) persistence(node rueidis.Client, in info) {
	if in.field("aof_enabled") == "0" {
		k.warn("persistence", "appendonly is off: a restart loses locks that are held (tokens grow on)")
		return
	}
	if fsync, ok := k.config(node, "appendfsync"); ok && fsync != "always" {
		k.warn("persistence", "appendfsync is %s: a crash loses the locks of the last moments (tokens grow on)", fsync)
	}
}

func (k *checkup) replicas(node rueidis.Client, in info) {
	n, _ := strconv.Atoi(in.field("connected_slaves"))
	if n < k.s.replicas {
		k.warn("replicas", "MinReplicas is %d but %d are connected: nothing can be locked", k.s.replicas, n)
	}
	if n == 0 {
		return
	}
	if least, ok := k.config(node, "min-replicas-to-write"); ok && least == "0" {
		k.warn("replicas", "min-replicas-to-write is 0: a master that was cut off goes on granting locks beside its successor; set it to 1 or more")
	}
}

// config is a setting, if there is the right to read it. What depends on it is
// advice, so that not having it is no warning.
func (k *checkup) config(node rueidis.Client, name string) (string, bool) {
	values, err := askNode(k.ctx, node, node.B().ConfigGet().Parameter(name).Build()).AsStrMap()
	value, ok := values[name]
	return value, err == nil && ok
}

// foreign looks for keys under the prefix that are not of this format.
func (k *checkup) foreign(node rueidis.Client) {
	const pages, shownKeys = 100, 3
	var strange []string
	number := 0
	err := scan(k.ctx, node, globEscaper.Replace(k.s.keys.prefix)+":*", pages, func(keys []string) error {
		types := make(rueidis.Commands, len(keys))
		for i, key := range keys {
			types[i] = node.B().Type().Key(key).Build()
		}
		answers, err := apart(k.ctx, func() []rueidis.RedisResult { return node.DoMulti(k.ctx, types...) })
		if err != nil {
			return err
		}
		for i, answer := range answers {
			kind, err := answer.ToString()
			if err != nil {
				return err
			}
			if kind == "none" || kind == k.s.keys.typeOf(keys[i]) {
				continue
			}
			if number++; len(strange) < shownKeys {
				strange = append(strange, strconv.Quote(keys[i])+" ("+kind+")")
			}
		}
		return nil
	})
	switch {
	case err != nil:
		k.warn("unchecked", "no look for foreign data under the prefix: %v", err)
	case number > 0:
		k.warn("foreign data", "%d keys under the prefix are not dlock's, such as %s; choose another Prefix", number, strings.Join(strange, ", "))
	}
}

// rights does with a lock of a random name all that is done with locks.
func (k *checkup) rights() {
	name := "check:" + rand.Text()
	first, second := k.request(name), k.request(name)
	second.Queue = true

	tries := []struct {
		what string
		do   func() error
	}{
		{"take a lock", func() error { _, err := k.s.Acquire(k.ctx, first); return err }},
		{"renew it", func() error { return k.s.Renew(k.ctx, []store.Ref{ref(first)})[0] }},
		{"wait for it", func() error { _, err := k.s.Acquire(k.ctx, second); return err }},
		{"subscribe to wake-ups (SSUBSCRIBE and the channels under the prefix)", func() error { return k.subscribe(name) }},
		{"send wake-ups (SPUBLISH and the channels under the prefix)", func() error { return k.publish(name) }},
		{"inspect it", func() error { _, err := k.s.Inspect(k.ctx, name); return err }},
		{"release it", func() error { return k.s.Release(k.ctx, ref(first)) }},
		{"give up a place", func() error { return k.s.Release(k.ctx, ref(second)) }},
	}
	for _, try := range tries {
		switch err := try.do(); {
		case err == nil:
		case replyIs(err, "NOPERM"), errors.Is(err, store.ErrRefused) && !replyIs(err, "OOM", "NOAUTH", "WRONGPASS"):
			k.warn("rights", "the user may not %s: %v", try.what, err)
		case errors.Is(err, store.ErrLost): // what came before it has failed
		default:
			k.warn("unreachable", "cannot %s: %v", try.what, err)
			return
		}
	}
}

func (k *checkup) request(name string) store.Request {
	return store.Request{
		Name: name, Owner: newID(), ID: newID(), Tokens: 1, Label: "check",
		TTL: 10 * time.Second, WaitTTL: 10 * time.Second,
	}
}

func ref(r store.Request) store.Ref {
	return store.Ref{Name: r.Name, Owner: r.Owner, ID: r.ID, Mode: r.Mode, TTL: r.TTL}
}

// subscribe subscribes to a channel of its own, as a request that waits does.
func (k *checkup) subscribe(name string) error {
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	var confirmed atomic.Bool
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		confirmed.Store(true)
		cancel()
	})
	node := ""
	for hops := 0; ; hops++ {
		received, err := apart(ctx, func() error {
			links := links{client: k.s.client, open: make(map[string]*link)}
			l := links.take(node)
			defer links.put(l, true)
			return l.receive(hooked, k.s.keys.channel(partition(name), newID()), func(rueidis.PubSubMessage) {})
		})
		if err == nil {
			err = received
		}
		if confirmed.Load() {
			return nil
		}
		moved, ok := movedTo(err)
		if !ok || moved == node || hops == mostHops {
			return err
		}
		node = moved
	}
}

func (k *checkup) publish(name string) error {
	c := k.s.client
	channel := k.s.keys.channel(partition(name), newID())
	return askNode(k.ctx, c, c.B().Spublish().Channel(channel).Message("check").Build()).Error()
}
