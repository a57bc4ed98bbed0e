package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// The rules of docs/redis.md, in this order.
const (
	base = iota
	inCluster
	minReplicas
	listing
	checking
	asksRole
	onSentinel
)

// rights reads the rules from the documentation: what a user gets, a word each.
func rights(t testing.TB, rules ...int) (words []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/redis.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## Least privilege\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	parts := strings.Split(section, "```")
	for _, rule := range rules {
		require.Greater(t, len(parts), 2*rule+2, "the section has too few rules")
		command := strings.Trim(parts[2*rule+1], "\n")
		require.NotContains(t, command, "\n", "redis-cli takes each line for a command")
		own, found := strings.CutPrefix(command, "ACL SETUSER locker ")
		require.True(t, found, command)
		words = append(words, strings.Fields(own)...)
	}
	require.Equal(t, []string{"on", ">PASSWORD"}, words[:2])
	return words[2:]
}

// grant makes a user with these rights, and the canary as password.
func grant(t testing.TB, server *redistest.Server, user string, rights []string) {
	t.Helper()
	server.MustDo(append([]string{"ACL", "SETUSER", user, "on", ">" + canary}, rights...)...)
}

// The documented rights are enough for all that a store does.
func conformanceOfRights(t *testing.T, open func(t testing.TB, url string) *redis.Store) {
	server := redistest.Start(t)
	grant(t, server, "locker", rights(t, base, listing))
	url := as("locker", server.Addr)
	s := suite(url, func(key string) {
		_ = server.Client().Do(context.Background(), server.Client().B().Set().Key(key).Value("not a lock").Build())
	})
	s.New = func(t testing.TB) store.Store { return open(t, url) }
	s.Peer = func(t testing.TB, _ store.Store) store.Store { return open(t, url) }
	s.Except = map[string]string{"raising/one life": "only nodes of a quorum are asked, who need the right to INFO"}
	conformance.RunSuite(t, s)
}

// A node of a quorum also says since when it has been up.
func TestLeastPrivilegeOfANode(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	grant(t, server, "node", rights(t, base, checking))
	_, _, err := open(t, as("node", server.Addr)).Incarnation(bounded(t))
	require.NoError(t, err)
	grant(t, server, "basic", rights(t, base))
	_, _, err = open(t, as("basic", server.Addr)).Incarnation(bounded(t))
	require.Error(t, err)
}

// They are enough for Check, which then finds nothing but what is so.
func TestLeastPrivilegeCheck(t *testing.T) {
	t.Parallel()
	server := startSound(t)
	grant(t, server, "locker", rights(t, base, listing, checking))
	require.Empty(t, open(t, as("locker", server.Addr)).Check(bounded(t)))
	grant(t, server, "basic", rights(t, base))
	require.Equal(t, []string{"unchecked"}, topics(open(t, as("basic", server.Addr))))
}

// In a cluster, with a slot that moves, and with replicas to wait for.
func TestLeastPrivilegeCluster(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t, true)
	user := func(name string, rights []string) {
		for _, s := range servers.Nodes {
			grant(t, s, name, rights)
		}
	}
	words := rights(t, base, inCluster, minReplicas)
	user("locker", words)
	url := func(name string) string { return as(name, strings.Join(servers.Addrs()[:3], ",")) + "?min_replicas=1" }
	s := open(t, url("locker"))
	require.Empty(t, refused(t, s))
	user("lister", rights(t, base, inCluster, listing))
	_, err := open(t, strings.TrimSuffix(url("lister"), "?min_replicas=1")).List(bounded(t))
	require.NoError(t, err)

	slot := redis.Slot(redis.LockKey("moving"))
	from := servers.Master(slot)
	to := servers.Nodes[(slices.Index(servers.Nodes, from)+1)%3]
	plain := open(t, strings.TrimSuffix(url("locker"), "?min_replicas=1"))
	held := want("moving", 1)
	held.TTL = time.Minute
	_, err = plain.Acquire(bounded(t), held)
	require.NoError(t, err)
	servers.BeginMove(slot, to)
	require.Equal(t, 1, servers.MoveKeys(slot, to, 1))
	// Where one of the keys is, only a call that asks can see.
	lost := map[string]bool{}
	for _, word := range append([]string{""}, rights(t, base, inCluster)...) {
		if word == "" || word == "+asking" {
			name := "without" + word
			user(name, without(words, word))
			p := open(t, strings.TrimSuffix(url(name), "?min_replicas=1"))
			ctx, cancel := context.WithTimeout(context.Background(), slack)
			lost[word] = p.Renew(ctx, []store.Ref{of(held)})[0] != nil
			cancel()
		}
	}
	require.Equal(t, map[string]bool{"": false, "+asking": true}, lost)
	for servers.MoveKeys(slot, to, 10) > 0 {
	}
	servers.EndMove(slot, to)
	require.NoError(t, plain.Release(bounded(t), of(held)))

	for _, word := range []string{"+cluster|slots", "+wait"} {
		user("locker2", append([]string{"reset", "on", ">" + canary}, without(words, word)...))
		require.NotEmpty(t, openAndUse(t, url("locker2")), "%s is not needed", word)
	}
}

// Behind sentinels, and at them.
func TestLeastPrivilegeSentinel(t *testing.T) {
	t.Parallel()
	servers := redistest.StartSentinel(t, 1)
	words, watching := rights(t, base, asksRole), rights(t, onSentinel)
	for _, s := range servers.Nodes {
		grant(t, s, "locker", words)
		grant(t, s, "no-role", without(words, "+role"))
	}
	by := func(user, watcher string) string {
		_, sentinels, _ := strings.Cut(servers.URL(), "//")
		return as(user, sentinels) + "&sentinel_user=" + watcher + "&sentinel_password=" + url.QueryEscape(canary)
	}
	var needed []string
	for i, word := range append([]string{""}, watching...) {
		if strings.HasPrefix(word, "reset") || word == "-@all" {
			continue
		}
		watcher := fmt.Sprint("watcher-", i)
		for _, s := range servers.Sentinels {
			grant(t, s, watcher, without(watching, word))
		}
		if found := openAndUse(t, by("locker", watcher)); word == "" {
			require.Empty(t, found)
		} else if len(found) > 0 {
			needed = append(needed, word)
		}
	}
	// The others are for being told of a switch, which is noticed otherwise too, later.
	require.Equal(t, []string{"+sentinel|sentinels", "+sentinel|get-master-addr-by-name"}, needed)
	require.NotEmpty(t, openAndUse(t, by("no-role", "watcher-0")))
}

func without(words []string, word string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == word })
}

// Each of the documented rights is needed: without it something is refused.
func TestLeastPrivilegeEachRightNeeded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for rule, use := range map[int]func(t testing.TB, s *redis.Store) []string{
		base:    refused,
		listing: func(t testing.TB, s *redis.Store) []string { _, err := s.List(bounded(t)); return problem("List", err) },
		checking: func(t testing.TB, s *redis.Store) (found []string) {
			for _, w := range s.Check(bounded(t)) {
				found = append(found, w.String())
			}
			return found
		},
	} {
		all := rights(t, base, listing, checking)
		own := rights(t, base)
		if rule != base {
			own = rights(t, base, rule)[len(own):]
		}
		server.MustDo("CONFIG", "SET", "appendonly", "yes") // with appendfsync everysec
		for i, word := range append([]string{""}, own...) {
			if strings.HasPrefix(word, "reset") || word == "-@all" {
				continue // that is where a new user begins
			}
			user := fmt.Sprint("user-", rule, "-", i)
			grant(t, server, user, without(all, word))
			var found []string
			for _, listed := range []int{64, 0} { // each form of a name needs its own
				s, err := redis.OpenListed(as(user, server.Addr), listed)
				if err != nil {
					found = append(found, err.Error())
					continue
				}
				found = append(found, use(t, s)...)
				s.Close()
			}
			switch {
			case word == "" && rule != checking:
				require.Empty(t, found, "with all rights")
			case word == "+config|get": // what it would find there is advice
				require.NotContains(t, strings.Join(found, "\n"), "appendfsync")
			case word == "" && rule == checking:
				require.Contains(t, strings.Join(found, "\n"), "appendfsync")
			default:
				require.NotEmpty(t, found, "%s is not needed", word)
			}
			for _, text := range found {
				noCanary(t, text)
			}
		}
	}
}

func problem(what string, err error) []string {
	if err == nil || errors.Is(err, store.ErrLost) || errors.Is(err, store.ErrHeld) || errors.Is(err, store.ErrUpgrade) {
		return nil
	}
	return []string{what + ": " + err.Error()}
}

func openAndUse(t testing.TB, url string) []string {
	s, err := redis.Open(url)
	if err != nil {
		return []string{err.Error()}
	}
	defer s.Close()
	return refused(t, s)
}

// refused does all that is done with locks and returns what failed.
func refused(t testing.TB, s *redis.Store) (found []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*slack)
	defer cancel()
	note := func(what string, err error) { found = append(found, problem(what, err)...) }
	name := "all/" + fmt.Sprint(time.Now().UnixNano())
	ask := func(n int, mode store.Mode, change ...func(*store.Request)) {
		r := want(name, n)
		r.Mode, r.Queue, r.TTL, r.WaitTTL = mode, true, time.Minute, time.Minute
		for _, f := range change {
			f(&r)
		}
		_, err := s.Acquire(ctx, r)
		note("Acquire", err)
	}
	release := func(n int, bury bool) {
		ref := of(want(name, n))
		ref.Bury = bury
		note("Release", s.Release(ctx, ref))
	}
	renew := func(n int) { note("Renew", s.Renew(ctx, []store.Ref{of(want(name, n))})[0]) }
	same := func(owner string) func(*store.Request) {
		return func(r *store.Request) { r.Owner = owner }
	}

	ask(1, store.Exclusive)
	renew(1)
	ask(1, store.Exclusive)
	ask(2, store.Shared)
	ask(2, store.Shared)
	ask(3, store.Shared)
	ask(4, store.Exclusive)
	renew(1)
	_, err := s.Inspect(ctx, name)
	note("Inspect", err)
	note("Prolong", redis.Prolong(ctx, s, of(want(name, 1))))
	release(1, false)
	ask(5, store.Shared, same("owner-2"))
	ask(6, store.Exclusive, same("owner-2"))
	release(3, false)
	release(2, true)
	release(5, false)
	renew(4)
	_, err = s.Break(ctx, name)
	note("Break", err)
	name += "/short"
	short := func(r *store.Request) { r.TTL, r.WaitTTL = 10*time.Millisecond, 10*time.Millisecond }
	ask(1, store.Exclusive, short)
	ask(2, store.Exclusive, short)
	ask(3, store.Exclusive, short)
	note("Channels", redis.TryChannels(ctx, s, name))
	release(1, false)
	return found
}
