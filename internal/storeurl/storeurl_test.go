package storeurl

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	u, err := Parse("redis://me:p%40ss@a,b:1,[::1]:2/3?prefix=x&n=4&d=5s&f=false", "6379", "redis", "rediss")
	if err != nil {
		t.Fatal(err)
	}
	if u.User != "me" || u.Password != "p@ss" || u.Path != "3" || !slices.Equal(u.Hosts, []string{"a:6379", "b:1", "[::1]:2"}) {
		t.Errorf("got %+v", u)
	}
	p := &u.Parameters
	if p.Text("prefix") != "x" || p.Number("n") != 4 || p.Duration("d") != 5*time.Second || p.Flag("f", true) || !p.Flag("g", true) {
		t.Error("parameters are wrong")
	}
	if err := p.Done(); err != nil {
		t.Error(err)
	}
}

// TestParseAtTheEdges: an empty user, the last port, flags either way.
func TestParseAtTheEdges(t *testing.T) {
	u, err := Parse("redis://@a:65535?yes=true&no=false", "6379", "redis")
	if err != nil {
		t.Fatal(err)
	}
	if u.User != "" || !slices.Equal(u.Hosts, []string{"a:65535"}) {
		t.Errorf("got %+v", u)
	}
	p := &u.Parameters
	if !p.Flag("yes", false) || p.Flag("no", true) || p.Flag("neither", false) {
		t.Error("flags are wrong")
	}
	if err := p.Done(); err != nil {
		t.Error(err)
	}
}

// TestInvalid: errors say why, and nothing of the URL.
func TestInvalid(t *testing.T) {
	for _, c := range []struct{ url, why string }{
		{"canary", "does not begin with"},
		{"http://canary@host", "does not begin with"},
		{"redis://", "host is missing"},
		{"redis://u:canary@", "host is missing"},
		{"redis://u:canary@:6379", "host is missing"},
		{"redis://a,,b", "host is missing"},
		{"redis:///0", "host is missing"},
		{"redis://?x=1", "host is missing"},
		{"redis://u:canary@a:port", "port is not a number"},
		{"redis://a:0", "port is not a number"},
		{"redis://a:65536", "port is not a number"},
		{"redis://u:%zzcanary@a", "percent-encoded"},
		{"redis://u:can#ary@a", "fragment"},
		{"redis://a/?x=%zzcanary", "percent-encoded"},
		{"redis://a/?text=1&text=2", "text is given twice"},
		{"redis://a/?text=", "text is empty"},
		{"redis://a/?number=canary", "number is not a number"},
		{"redis://a/?duration=canary", "duration is not a positive"},
		{"redis://a/?duration=-1s", "duration is not a positive"},
		{"redis://a/?duration=0s", "duration is not a positive"},
		{"redis://a/?flag=canary", "flag is not true or false"},
		{"redis://a/?strange=canary", "the parameter strange is unknown; there are ca_file, cert_file, duration, flag,"},
		{"redis://a/?Flag=canary", "the parameter Flag is unknown"},
		{"redis://a/?canary=1@b", "unknown parameter (a ? in a password"},
		{"redis://u:1?canary@a", "unknown parameter (a ? in a password"},
		{"redis://a/?canary-1=1", "unknown parameter (a ? in a password"},
		{"redis://a/?cert_file=canary", "need each other"},
	} {
		u, err := Parse(c.url, "6379", "redis")
		if err == nil {
			p := &u.Parameters
			p.Text("text")
			p.Number("number")
			p.Duration("duration")
			p.Flag("flag", false)
			files := p.TLS()
			if err = p.Done(); err == nil {
				_, err = files.Config()
			}
		}
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.why) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: got %v, want ErrInvalid because %q", c.url, err, c.why)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("redis://me:secret@a,b:1/3?prefix=x")
	f.Add("redis://[::1]:2")
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := Parse(raw, "6379", "redis")
		if (err == nil) != (u != nil && len(u.Hosts) > 0) || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("got %+v, %v", u, err)
		}
	})
}
