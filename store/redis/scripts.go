package redis

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

//go:embed scripts/*.lua
var sources embed.FS

// listed is the most entries of a name in the listed form, see scripts/name.lua.
const listed = 64

// scripts are those of one handle.
type scripts struct {
	acquire, renew, prolong, release, inspect, raise *script
}

var defaultScripts = sync.OnceValue(func() *scripts { return newScripts(listed) })

// newScripts reads the scripts. Acquire alone is refused when the server is out of
// memory: the others free memory, or nothing could. Looks are allowed where
// nothing may be written.
func newScripts(listed int) *scripts {
	const frees, looks = "#!lua flags=allow-oom", "#!lua flags=no-writes"
	return &scripts{
		acquire: newScript("acquire", "#!lua", listed),
		renew:   newScript("renew", frees, listed),
		prolong: newScript("prolong", frees, listed),
		release: newScript("release", frees, listed),
		raise:   newScript("raise", frees, listed),
		inspect: newScript("inspect", looks, listed),
	}
}

type script struct{ text, sha string }

var (
	include = regexp.MustCompile(`(?m)^-- include (\w+)\.lua\n`)
	comment = regexp.MustCompile(`(?m)^ *--.*\n|^\n`)
)

// newScript reads a script, puts others where it includes them, and removes comments.
// name.lua comes after what a script does for the commonest states of a lock, because
// merely defining its functions would take longer than that.
func newScript(name, shebang string, listed int) *script {
	text := source(name)
	for include.MatchString(text) {
		text = include.ReplaceAllStringFunc(text, func(line string) string {
			return source(include.FindStringSubmatch(line)[1])
		})
	}
	text = strings.Replace(text, "local limit = 64", "local limit = "+strconv.Itoa(listed), 1)
	text = shebang + "\n" + comment.ReplaceAllString(text, "")
	sum := sha1.Sum([]byte(text))
	return &script{text: text, sha: hex.EncodeToString(sum[:])}
}

func source(name string) string {
	text, err := sources.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

func (s *script) bySHA(c rueidis.Client, keys, args []string) rueidis.Completed {
	return c.B().Evalsha().Sha1(s.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

func (s *script) byText(c rueidis.Client, keys, args []string) rueidis.Completed {
	return c.B().Eval().Script(s.text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// The pauses between two tries of a call that the server did not run.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 100 * time.Millisecond
)

// run calls a script on one name.
func (s *Store) run(ctx context.Context, sc *script, n *name, args []string) (reply rueidis.RedisMessage, err error) {
	n.withKeys(func(keys []string) error {
		reply, err = s.runKeys(ctx, sc, n, keys, args)
		return err
	})
	return reply, err
}

// runKeys calls a script on keys of the partition of n. While the server cannot run
// it, it is called again until ctx ends.
func (s *Store) runKeys(ctx context.Context, sc *script, n *name, keys, args []string) (rueidis.RedisMessage, error) {
	reply, err := s.call(ctx, sc, n, keys, args)
	if notRun(err) {
		err = s.repeatNotRun(ctx, func() error {
			reply, err = s.call(ctx, sc, n, keys, args)
			return err
		})
	}
	return reply, err
}

// call calls a script once. A server that does not know it is given its text, in
// the same logical call.
func (s *Store) call(ctx context.Context, sc *script, n *name, keys, args []string) (rueidis.RedisMessage, error) {
	c := s.combiner(n)
	loads := c.loads.Load()
	reply, err := c.do(ctx, sc.bySHA(s.client, keys, args))
	for replyIs(err, "NOSCRIPT") {
		// One call sends the text. The others wait for it, and send the digest again. In a
		// cluster that is so for each partition, because another one's server may hang.
		select {
		case c.loading <- struct{}{}:
		case <-ctx.Done():
			return reply, ctx.Err()
		}
		if now := c.loads.Load(); now != loads {
			<-c.loading
			loads = now
			reply, err = c.do(ctx, sc.bySHA(s.client, keys, args))
			continue
		}
		reply, err = c.do(ctx, sc.byText(s.client, keys, args))
		c.loads.Add(1)
		<-c.loading
	}
	return reply, err
}

// combiner sends commands about keys of the partition of n, with others that are on
// their way to the same server.
func (s *Store) combiner(n *name) *combiner {
	p := 0
	if s.client.Mode() == rueidis.ClientModeCluster {
		p = n.partition
	}
	return &s.combiners[p]
}

// repeatNotRun repeats a call that the server certainly did not run because it
// cannot just now, until ctx ends. Nothing else is ever sent twice: a copy that
// arrives after its release could be granted.
func (s *Store) repeatNotRun(ctx context.Context, call func() error) error {
	pause := firstPause
	for {
		err := call()
		if !notRun(err) {
			return err
		}
		if !sleep(ctx, pause) {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		pause = min(2*pause, lastPause)
	}
}

// sleep waits, and reports whether ctx is still on.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
