package real

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/internal/redistest"
)

// register is the resource that the locks protect: a version per name, at a
// server that no fault meets. It checks tokens, of readers too, for otherwise a
// late write is taken that comes between a newer holder's read and its write. A
// reader yields to writers only, as readers hold the lock together and the order
// of their tokens is no order among them.
type register struct{ client rueidis.Client }

const registerState = `
local token = tonumber(ARGV[1])
local newest = tonumber(redis.call('HGET', KEYS[1], 'newest') or '0')
local written = tonumber(redis.call('HGET', KEYS[1], 'written') or '0')
local version = tonumber(redis.call('HGET', KEYS[1], 'version') or '0')
`

var (
	readScript = rueidis.NewLuaScript(registerState + `
if token < written then return {0, version} end
if token > newest then redis.call('HSET', KEYS[1], 'newest', ARGV[1]) end
redis.call('RPUSH', KEYS[2], 'r ' .. ARGV[1] .. ' ' .. version)
return {1, version}`)

	// ARGV: token, version that the write builds on, who writes.
	writeScript = rueidis.NewLuaScript(registerState + `
if token < newest then return {0, version} end
redis.call('HSET', KEYS[1], 'newest', ARGV[1], 'written', ARGV[1], 'version', version + 1)
redis.call('RPUSH', KEYS[2], 'w ' .. ARGV[1] .. ' ' .. (version + 1) .. ' ' .. ARGV[2] .. ' ' .. ARGV[3])
return {1, version + 1}`)
)

func openRegister(addr string) (register, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true, AlwaysPipelining: true, PipelineMultiplex: -1,
	})
	return register{c}, err
}

// read returns the version, and whether the register took the token.
func (r register) read(key string, token uint64) (version int, ok bool, err error) {
	return answer(readScript.Exec(context.Background(), r.client, keysOf(key), []string{decimal(token)}))
}

// write makes another version out of base, which it does not check: whether it
// was the newest is what a history has to show.
func (r register) write(key string, token uint64, base int, writer string) (version int, ok bool, err error) {
	return answer(writeScript.Exec(context.Background(), r.client, keysOf(key), []string{decimal(token), strconv.Itoa(base), writer}))
}

func keysOf(key string) []string { return []string{key, key + " log"} }

func decimal(token uint64) string { return strconv.FormatUint(token, 10) }

func answer(reply rueidis.RedisResult) (version int, ok bool, err error) {
	numbers, err := reply.AsIntSlice()
	if err != nil {
		return 0, false, err
	}
	return int(numbers[1]), numbers[0] == 1, nil
}

// access is one that the register took.
type access struct {
	Write   bool
	Token   uint64
	Version int
	Base    int    // of a write
	Writer  string // of a write
}

// taken returns all that was taken, in its order.
func taken(t testing.TB, server *redistest.Server, key string) (all []access) {
	t.Helper()
	lines, err := server.Do("LRANGE", keysOf(key)[1], "0", "-1").AsStrSlice()
	if err != nil {
		t.Fatal("the log of the register:", err)
	}
	for _, line := range lines {
		var a access
		var kind string
		fields := strings.NewReader(line)
		_, err := fmt.Fscan(fields, &kind, &a.Token, &a.Version)
		if a.Write = kind == "w"; a.Write && err == nil {
			_, err = fmt.Fscan(fields, &a.Base, &a.Writer)
		}
		if err != nil {
			t.Fatalf("the log of the register has %q: %v", line, err)
		}
		all = append(all, a)
	}
	return all
}
