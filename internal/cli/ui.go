package cli

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/dlock-go/dlock/ui"
)

var uiCommand = command{
	name: "ui", short: "serve a page that shows the locks",
	long: `Serves a page with locks, holders and waiters, live. It shows and changes nothing unless --token-file or
DLOCK_UI_TOKEN gives a token. Then whoever knows the token can break locks. The page has no other
protection: listen on a loopback address, or put a proxy with TLS and a login before it.
`,
	setup: func(p *Program, f *flag.FlagSet) action {
		s := p.storeFlag(f)
		listen := "127.0.0.1:7070"
		f.Func("listen", "`address` to listen on (default "+listen+")", text(&listen))
		var tokenFile string
		f.Func("token-file", "`file` with the token that breaking a lock needs, instead of DLOCK_UI_TOKEN", text(&tokenFile))
		return func(ctx context.Context, args []string) (int, error) {
			if len(args) > 0 {
				return 0, usage("unexpected argument %q", args[0])
			}
			token, err := p.uiToken(tokenFile)
			if err != nil {
				return 0, err
			}
			client, end, err := s.client(ctx, nil)
			if err != nil {
				return 0, err
			}
			defer end()
			handler, err := ui.New(client, &ui.Options{Token: token})
			if err != nil {
				return 0, err
			}
			return exitOK, p.serve(ctx, listen, handler)
		}
	},
}

// uiToken returns the token of the file or of the environment, "" for none.
func (p *Program) uiToken(file string) (string, error) {
	if file == "" {
		return strings.TrimSpace(p.Getenv("DLOCK_UI_TOKEN")), nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", usage("--token-file: the file is empty")
	}
	return token, nil
}

// serve serves the page until ctx ends.
func (p *Program) serve(ctx context.Context, address string, page http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	if tcp, ok := listener.Addr().(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		page = localOnly(page)
	}
	// Requests end with ctx, and the live ones never on their own.
	server := &http.Server{
		Handler: page, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() {
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		server.Shutdown(limit)
	})
	defer stop()
	fmt.Fprintf(p.Stdout, "dlock ui: http://%s/\n", listener.Addr())
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}

// localOnly refuses requests for other hosts. A page of another site could otherwise read
// from a loopback address, under a name of its own that resolves to it.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(strings.Trim(host, "[]")); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "this page is served on a loopback address, under such names only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
