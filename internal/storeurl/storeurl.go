// Package storeurl reads the URLs of stores. Its errors never repeat what they
// complain of: a URL may have a password in it.
package storeurl

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrInvalid: the text is no URL of the store.
var ErrInvalid = errors.New("invalid store URL")

// URL is scheme://[user:password@]host[:port][,host[:port]...][/path][?parameters].
type URL struct {
	Scheme         string
	User, Password string
	Hosts          []string // host:port
	Path           string   // without its first slash
	Parameters     Parameters
}

// Parse reads a URL with one of the schemes. Hosts without a port get the
// default one.
func Parse(raw, defaultPort string, schemes ...string) (*URL, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || !slices.Contains(schemes, scheme) {
		return nil, Invalid("it does not begin with %s://", strings.Join(schemes, ":// or "))
	}
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	authority, rest := rest[:end], rest[end:]
	user, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	// net/url knows one host only, and its errors repeat what they complain of.
	u, err := url.Parse(scheme + "://" + user + "host" + rest)
	if err != nil {
		return nil, Invalid("user, password, path or parameters are not percent-encoded")
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, Invalid("the parameters are not percent-encoded")
	}
	if strings.Contains(raw, "#") {
		return nil, Invalid("it has a fragment (a # in a password is written %%23)")
	}
	parsed := &URL{Scheme: scheme, Path: strings.TrimPrefix(u.Path, "/"), Parameters: Parameters{values: values, secret: strings.Contains(rest, "@")}}
	if u.User != nil {
		parsed.User = u.User.Username()
		parsed.Password, _ = u.User.Password()
	}
	if parsed.Hosts, err = addresses(hosts, defaultPort); err != nil {
		return nil, err
	}
	return parsed, nil
}

// Invalid is an error that matches ErrInvalid and says why.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// addresses splits host[:port],... and fills in the port.
func addresses(hosts, defaultPort string) ([]string, error) {
	var list []string
	for h := range strings.SplitSeq(hosts, ",") {
		host, port, err := net.SplitHostPort(h)
		if err != nil {
			host, port, err = net.SplitHostPort(h + ":" + defaultPort)
		}
		if err != nil || host == "" {
			return nil, Invalid("a host is missing or malformed")
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, Invalid("a port is not a number between 1 and 65535")
		}
		list = append(list, net.JoinHostPort(host, port))
	}
	return list, nil
}

// Parameters are what comes after the question mark. Each is read once, by name;
// Done says what was wrong with them, and complains of those that nobody read.
type Parameters struct {
	values url.Values
	secret bool     // they may be the end of a password with a ? in it
	known  []string // that were read
	err    error
}

// Fail notes that a parameter is wrong, unless another one was before.
func (p *Parameters) Fail(format string, args ...any) {
	if p.err == nil {
		p.err = Invalid(format, args...)
	}
}

// Text is a parameter's value, "" if it is not given.
func (p *Parameters) Text(name string) string {
	p.known = append(p.known, name)
	v := p.values[name]
	delete(p.values, name)
	switch {
	case len(v) == 0:
		return ""
	case len(v) > 1:
		p.Fail("%s is given twice", name)
	case v[0] == "":
		p.Fail("%s is empty", name)
	}
	return v[0]
}

// Number is a parameter that is one, 0 if it is not given.
func (p *Parameters) Number(name string) int {
	text := p.Text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		p.Fail("%s is not a number", name)
	}
	return n
}

// Duration is a parameter that is a positive one, 0 if it is not given.
func (p *Parameters) Duration(name string) time.Duration {
	text := p.Text(name)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		p.Fail("%s is not a positive duration such as 500ms", name)
	}
	return d
}

// Flag is a parameter that is true or false, and otherwise if it is not given.
func (p *Parameters) Flag(name string, otherwise bool) bool {
	switch p.Text(name) {
	case "":
	case "true":
		return true
	case "false":
		return false
	default:
		p.Fail("%s is not true or false", name)
	}
	return otherwise
}

// plain is the form of a name that may be shown: not that of a good password.
var plain = regexp.MustCompile(`^[A-Za-z_]{1,20}$`)

// Done returns what is wrong. An error matches ErrInvalid.
func (p *Parameters) Done() error {
	slices.Sort(p.known)
	for _, name := range slices.Sorted(maps.Keys(p.values)) {
		if p.secret || !plain.MatchString(name) {
			p.Fail("there is an unknown parameter (a ? in a password is written %%3F)")
		}
		p.Fail("the parameter %s is unknown; there are %s", name, strings.Join(p.known, ", "))
	}
	return p.err
}
