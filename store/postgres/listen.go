package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	listenTimeout = 2 * time.Second  // for the first message, which a pooler swallows
	probeEvery    = 30 * time.Second // a connection that is silent
	probeTimeout  = 5 * time.Second
	firstPause    = 50 * time.Millisecond // between attempts to connect, doubled each time
	longestPause  = 2 * time.Second
	longestDeaf   = time.Minute // the same while LISTEN has never worked
	waitingSends  = 1024
)

// errPolls: Options.Poll is set.
var errPolls = errors.New("postgres: the handle polls")

// listening is the backend with messages: LISTEN on a connection of its own and
// NOTIFY through the pool.
type listening struct {
	*backend
	opening context.Context // bounds Receive
}

// listener is the connection for messages to this handle.
type listener struct {
	b       *backend
	channel string
	got     func(msg []byte)
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	sends   chan notice
}

// notice is a message that is to be sent.
type notice struct{ channel, msg string }

// channelOf is the channel of a handle.
func channelOf(handle string) string { return "dlock_" + strings.ToLower(handle) }

// Receive implements [kv.Notifier]. Behind a pooler in transaction mode LISTEN
// succeeds and no message ever comes, so the first message is one to itself. After a
// failure, which may pass, it is tried again in the background.
func (l listening) Receive(handle string, got func(msg []byte)) error {
	b := l.backend
	link := &listener{b: b, channel: channelOf(handle), got: got, sends: make(chan notice, waitingSends)}
	link.ctx, link.cancel = context.WithCancel(context.Background())
	b.mu.Lock()
	b.link = link
	b.mu.Unlock()
	link.running.Go(link.send)
	if b.opts.Poll {
		return errPolls
	}
	conn, err := link.tested(l.opening)
	link.running.Go(func() {
		if conn == nil {
			if conn = link.retry(link.tested, longestDeaf); conn == nil {
				return
			}
			got(nil)
		}
		link.receive(conn)
	})
	return err
}

// Send implements [kv.Notifier].
func (l listening) Send(handle string, msg []byte) {
	l.mu.Lock()
	link := l.link
	l.mu.Unlock()
	select {
	case link.sends <- notice{channelOf(handle), string(msg)}:
	default: // too many: losing one costs time only
	}
}

// connect opens the connection and listens.
func (l *listener) connect(ctx context.Context) (*pgx.Conn, error) {
	config := l.b.opts.Listen
	if config == nil {
		config = l.b.pool.Config().ConnConfig
	}
	config = config.Copy()
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, connectTimeout)
	config.OnNotification = nil // a config of another connection has that one's
	if hook := l.b.pool.Config().BeforeConnect; hook != nil && l.b.opts.Listen == nil {
		if err := hook(ctx, config); err != nil {
			return nil, err
		}
	}
	if config.RuntimeParams == nil {
		config.RuntimeParams = make(map[string]string)
	}
	config.RuntimeParams["application_name"] = "dlock listener"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{l.channel}.Sanitize()); err != nil {
		conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// tested opens a connection to which messages arrive.
func (l *listener) tested(ctx context.Context) (*pgx.Conn, error) {
	conn, err := l.connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.test(ctx, conn); err != nil {
		conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// test sends a message through the pool and waits for it.
func (l *listener) test(ctx context.Context, conn *pgx.Conn) error {
	word := rand.Text()
	if _, err := l.b.pool.Exec(ctx, "SELECT pg_notify($1, $2)", l.channel, word); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if n.Payload == word {
			return nil
		}
	}
}

// receive passes messages on and connects again after a break.
func (l *listener) receive(conn *pgx.Conn) {
	for {
		l.follow(conn)
		closing, cancel := context.WithTimeout(context.Background(), probeTimeout)
		conn.Close(closing)
		cancel()
		if conn = l.retry(l.connect, longestPause); conn == nil {
			return
		}
		l.got(nil)
	}
}

// follow passes messages on until the connection breaks.
func (l *listener) follow(conn *pgx.Conn) {
	for l.ctx.Err() == nil {
		wait, cancel := context.WithTimeout(l.ctx, probeEvery)
		n, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil:
			l.got([]byte(n.Payload))
			continue
		case !errors.Is(err, context.DeadlineExceeded) || conn.IsClosed():
			return
		}
		probe, cancel := context.WithTimeout(l.ctx, probeTimeout)
		err = conn.Ping(probe)
		cancel()
		if err != nil {
			return
		}
	}
}

// retry tries until it has a connection or the handle is closed.
func (l *listener) retry(connect func(context.Context) (*pgx.Conn, error), longest time.Duration) *pgx.Conn {
	for pause := firstPause; ; pause = min(2*pause, longest) {
		ctx, cancel := context.WithTimeout(l.ctx, openTimeout)
		conn, err := connect(ctx)
		cancel()
		if err == nil {
			return conn
		}
		select {
		case <-time.After(pause):
		case <-l.ctx.Done():
			return nil
		}
	}
}

// send sends messages, those that wait together in one statement. NOTIFY takes a
// lock of the whole database until its transaction has ended. In the transaction
// of a grant it would make all grants wait for each other's disk; alone it writes
// nothing and is short.
func (l *listener) send() {
	for {
		var channels, messages []string
		select {
		case n := <-l.sends:
			channels, messages = append(channels, n.channel), append(messages, n.msg)
		case <-l.ctx.Done():
			return
		}
		for more := true; more && len(channels) < 100; {
			select {
			case n := <-l.sends:
				channels, messages = append(channels, n.channel), append(messages, n.msg)
			default:
				more = false
			}
		}
		ctx, cancel := context.WithTimeout(l.ctx, probeTimeout)
		l.b.pool.Exec(ctx, "SELECT pg_notify(c, m) FROM unnest($1::text[], $2::text[]) AS u(c, m)", channels, messages)
		cancel()
	}
}

// close ends the connection.
func (l *listener) close() {
	l.cancel()
	l.running.Wait()
}
