package redistest

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func connect(t *testing.T, addr string) rueidis.Client {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true,
		AlwaysPipelining: true, DisableRetry: true, PipelineMultiplex: -1,
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

const increment = "return redis.call('INCRBY', KEYS[1], ARGV[1])"

// incr runs a script that adds by to n and returns the sum.
func incr(client rueidis.Client, by int, patience time.Duration) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return client.Do(ctx, client.B().Eval().Script(increment).Numkeys(1).Key("n").Arg(strconv.Itoa(by)).Build()).ToInt64()
}

// once has the first call meet the action.
func once(a Action) func(int, []string) Action {
	return func(call int, _ []string) Action {
		if call == 1 {
			return a
		}
		return Pass
	}
}

const long, short = 10 * time.Second, 100 * time.Millisecond

func TestProxyActions(t *testing.T) {
	s := Start(t)
	p := StartProxy(t, s.Addr)
	client := connect(t, p.Addr)
	broken := func(err error) {
		t.Helper()
		require.Error(t, err)
		require.False(t, errors.Is(err, context.DeadlineExceeded), "got %v", err)
	}
	reset := func(a Action) { s.MustDo("SET", "n", "0"); p.Plan(once(a)) }

	reset(Pass)
	n, err := incr(client, 1, long)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.Equal(t, 1, p.Calls())
	require.NoError(t, client.Do(context.Background(), client.B().Ping().Build()).Error())
	require.Equal(t, 1, p.Calls())

	reset(CutBefore)
	require.Equal(t, 0, p.Calls())
	_, err = incr(client, 1, long)
	broken(err)
	require.Equal(t, "0", s.MustDo("GET", "n"))

	reset(CutReply)
	_, err = incr(client, 1, long)
	broken(err)
	require.Equal(t, "1", s.MustDo("GET", "n"))

	reset(Twice)
	n, err = incr(client, 5, long)
	require.NoError(t, err)
	require.EqualValues(t, 10, n)
	n, err = incr(client, 1, long)
	require.NoError(t, err)
	require.EqualValues(t, 11, n, "the replies still match the requests")
	require.Equal(t, 2, p.Calls())

	reset(SwallowReply)
	_, err = incr(client, 1, short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = incr(client, 1, short)
	require.ErrorIs(t, err, context.DeadlineExceeded, "later replies are dropped too")
	s.await("both requests arrive", func() bool { return s.MustDo("GET", "n") == "2" })
	p.Cut()
	require.Eventually(t, func() bool { _, err := incr(client, 1, long); return err == nil }, long, time.Millisecond)

	reset(Hold)
	_, err = incr(client, 1, short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = incr(client, 1, short)
	require.ErrorIs(t, err, context.DeadlineExceeded, "later requests wait too")
	require.Equal(t, "0", s.MustDo("GET", "n"))
	require.Equal(t, 1, p.Calls())
	p.Unhold()
	n, err = incr(client, 1, long)
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
}

func TestHeldRequestArrivesAfterItsClientHasGone(t *testing.T) {
	s := Start(t)
	p := StartProxy(t, s.Addr)
	held := make(chan []string, 1)
	p.Plan(func(_ int, args []string) Action { held <- args; return Hold })
	conn, err := net.Dial("tcp", p.Addr)
	require.NoError(t, err)
	_, err = io.WriteString(conn, "*4\r\n$4\r\neval\r\n$33\r\nreturn redis.call('INCR',KEYS[1])\r\n$1\r\n1\r\n$1\r\nn\r\n")
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.Equal(t, []string{"eval", "return redis.call('INCR',KEYS[1])", "1", "n"}, <-held)
	require.Empty(t, s.MustDo("GET", "n"))
	p.Unhold()
	s.await("the request arrives", func() bool { return s.MustDo("GET", "n") == "1" })
}

func TestProxyCutsAmongConcurrentCalls(t *testing.T) {
	s := Start(t)
	p := StartProxy(t, s.Addr)
	client := connect(t, p.Addr)
	p.Plan(func(call int, _ []string) Action {
		if call%10 == 0 {
			return CutReply
		}
		return []Action{Pass, Twice}[call%2]
	})
	var calls sync.WaitGroup
	for i := range 100 {
		calls.Go(func() {
			key := strconv.Itoa(i)
			eval := client.B().Eval().Script(increment).Numkeys(1).Key(key).Arg("1").Build()
			if n, err := client.Do(context.Background(), eval).ToInt64(); err == nil {
				assert.Contains(t, []int64{1, 2}, n, "nobody gets the reply of another")
			}
			if text, err := client.Do(context.Background(), client.B().Echo().Message(key).Build()).ToString(); err == nil {
				assert.Equal(t, key, text)
			}
		})
	}
	calls.Wait()
	require.Greater(t, p.Calls(), 10)
}

func TestBlackholeSwallowsUntilItGoesOff(t *testing.T) {
	s := Start(t)
	p := StartProxy(t, s.Addr)
	client := connect(t, p.Addr)
	s.MustDo("SET", "n", "0")
	p.Blackhole(true)
	_, err := incr(client, 1, short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, 0, p.Calls())
	require.False(t, answers(p.Addr, s.Pid()))
	s.Restart()
	_, err = incr(client, 1, short)
	require.ErrorIs(t, err, context.DeadlineExceeded, "nobody has heard of the restart")
	p.Blackhole(false)
	s.await("the client connects again", func() bool { _, err := incr(client, 1, long); return err == nil })
}

func TestBlackholeLeavesIdleConnectionsAlone(t *testing.T) {
	p := StartProxy(t, Start(t).Addr)
	client := connect(t, p.Addr)
	id := func() int64 {
		n, err := client.Do(context.Background(), client.B().ClientId().Build()).AsInt64()
		require.NoError(t, err)
		return n
	}
	before := id()
	p.Blackhole(true)
	p.Blackhole(false)
	require.Equal(t, before, id())
}

func TestDelayIsNoLimitOfThroughput(t *testing.T) {
	p := StartProxy(t, Start(t).Addr)
	client := connect(t, p.Addr)
	p.Delay(200 * time.Millisecond)
	began := time.Now()
	var calls sync.WaitGroup
	for range 50 {
		calls.Go(func() {
			_, err := incr(client, 1, long)
			assert.NoError(t, err)
		})
	}
	calls.Wait()
	took := time.Since(began)
	require.GreaterOrEqual(t, took, 200*time.Millisecond)
	require.Less(t, took, 50*200*time.Millisecond)
}

func TestProxyTellsPushMessagesFromReplies(t *testing.T) {
	s := Start(t)
	p := StartProxy(t, s.Addr)
	client := connect(t, p.Addr)
	received := make(chan string, 10)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- client.Receive(ctx, client.B().Ssubscribe().Channel("{c}1", "{c}2").Build(),
			func(m rueidis.PubSubMessage) { received <- m.Message })
	}()
	s.await("the subscription is there", func() bool { return s.MustDo("PUBSUB", "SHARDNUMSUB", "{c}2") == "{c}2\n1" })
	p.Plan(func(int, []string) Action { return Twice })
	for i := range 20 {
		s.MustDo("SPUBLISH", "{c}2", "hello")
		n, err := incr(client, 1, long)
		require.NoError(t, err)
		require.EqualValues(t, 2*i+2, n)
		require.Equal(t, "hello", <-received)
	}
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
	n, err := incr(client, 1, long)
	require.NoError(t, err)
	require.EqualValues(t, 42, n)

	// One that fails has a reply of its own.
	s.MustDo("ACL", "SETUSER", "default", "resetchannels", "&{c}*")
	ctx, stop = context.WithTimeout(context.Background(), long)
	defer stop()
	err = client.Receive(ctx, client.B().Ssubscribe().Channel("forbidden").Build(), func(rueidis.PubSubMessage) {})
	require.ErrorContains(t, err, "NOPERM")
	n, err = incr(client, 1, long)
	require.NoError(t, err)
	require.EqualValues(t, 44, n)
	p.Cut()
}

func TestProxyWithoutServerClosesConnections(t *testing.T) {
	s := Start(t)
	p := StartProxy(t, s.Addr)
	client := connect(t, p.Addr)
	s.Kill()
	_, err := incr(client, 1, long)
	require.Error(t, err)
	require.False(t, errors.Is(err, context.DeadlineExceeded))
	s.Restart()
	s.await("the client connects again", func() bool { _, err := incr(client, 1, long); return err == nil })
}
