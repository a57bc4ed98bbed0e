package redis

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

//go:embed scripts/*.lua
var sources embed.FS

// The scripts. Acquire alone is refused when the server is out of memory: the
// others free memory, or nothing could.
var (
	acquireScript = newScript("acquire", "#!lua")
	renewScript   = newScript("renew", "#!lua flags=allow-oom")
	prolongScript = newScript("prolong", "#!lua flags=allow-oom")
	confirmScript = newScript("confirm", "#!lua flags=allow-oom")
	releaseScript = newScript("release", "#!lua flags=allow-oom")
	inspectScript = newScript("inspect", "#!lua flags=allow-oom")
	raiseScript   = newScript("raise", "#!lua flags=allow-oom")
	breakScript   = newScript("break", "#!lua flags=allow-oom")
	countScript   = newScript("count", "#!lua flags=allow-oom")
)

type script struct{ text, sha string }

// newScript reads a script and puts others where it says so. The model comes after
// what a script does for the commonest states of a lock, because merely defining
// its functions would take longer than that.
func newScript(name, shebang string) *script {
	text := shebang + "\n" + source(name)
	for _, part := range []string{"token", "join", "queue", "handover", "part", "model"} {
		text = strings.Replace(text, "-- include "+part+".lua\n", source(part), 1)
	}
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

// run calls a script. A server that does not know it is given its text, in the
// same logical call.
func (s *Store) run(ctx context.Context, sc *script, keys, args []string) (reply rueidis.RedisMessage, err error) {
	err = s.persist(ctx, func() error {
		reply, err = s.client.Do(ctx, sc.bySHA(s.client, keys, args)).ToMessage()
		if replyIs(err, "NOSCRIPT") {
			reply, err = s.client.Do(ctx, sc.byText(s.client, keys, args)).ToMessage()
		}
		return err
	})
	return reply, err
}

// persist repeats a call that the server certainly did not run because it
// cannot just now, until ctx ends. Nothing else is ever sent twice: a copy that
// arrives late could be granted when nobody wants it any more.
func (s *Store) persist(ctx context.Context, call func() error) error {
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
