package conformance

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/store"
)

const saysNames = "Names have 1 to 1024 bytes, and those bytes are arbitrary: NUL, newline, braces and invalid UTF-8 occur."

// odd are name endings that a store's own encoding could confuse with each
// other, with its own keys, or with patterns.
var odd = []string{
	"", "a", "A", "aa", "a ", " a", "a\x00", "\x00a", "a\n", "a\r\n", "a\t", "é", "e\u0301", "\xff", "\xff\xfe", "\xc3", "\ufffd",
	"{", "}", "{}", "{a}", "}{", "a}b{", "{{a}}", ":", "::", "a:b", "a:", ":a", "/", "//", "a/", "/a", "a/b", "a//b", "..", "../a", ".",
	"*", "?", "[a]", "a*", `\`, `\\`, `"`, `'`, "%", "%00", "%61", "%2F", "%s", "a%20", "a+", "+", "&", "#", "$", ";", ",", "|",
	":queue", ":holds", ":token", ":fence", ":lock", "/queue", "/holds", ".lock", ":q", ":h", "{x}:queue", ":0", "0", "1", "-1", "00",
	"nil", "null", "<nil>", "\u2028", "\u200b", "\x7f", "\x1b[31m",
}

var nameCases = []testCase{
	{
		name: "odd bytes",
		says: saysNames,
		run: func(h *harness) {
			for _, end := range odd {
				a := h.exclusive("A").on(h.name + end)
				a.hold()
				h.exclusive("B").on(h.name + end).refused(store.ErrHeld)
				a.renew(h.long)
				a.release()
				h.exclusive("B").on(h.name + end).hold()
			}
		},
	},
	{
		name: "never collide",
		says: "For each name a store keeps its live holds",
		run: func(h *harness) {
			claims := make([]*claim, len(odd))
			for i, end := range odd {
				claims[i] = h.exclusive("A").on(h.name + end)
				claims[i].req.Owner = h.owner(fmt.Sprintf("o%d", i))
				claims[i].hold()
			}
			for _, c := range claims {
				s := h.inspect(c.req.Name)
				if s.Name != c.req.Name {
					h.fail(fmt.Sprintf("Inspect(%.60q)", c.req.Name), fmt.Sprintf("Name: %q", s.Name), "the same name")
				}
				h.same("holders of "+fmt.Sprintf("%q", c.req.Name), s.Holders, []*claim{c}, false)
			}
			for _, c := range claims {
				c.release()
			}
		},
	},
	{
		name: "waiters of odd names",
		says: saysEvent, needs: fair,
		run: func(h *harness) {
			for _, end := range odd {
				a, w := h.exclusive("A").on(h.name+end), h.exclusive("W").on(h.name+end)
				a.hold()
				w.queue()
				a.release()
				h.wake(w)
			}
		},
	},
	{
		name: "one byte",
		says: saysNames,
		run: func(h *harness) {
			var held []*claim
			for _, name := range []string{"x", "\x00", "\n", "{", "}", "/", ":", " ", "\xff", "0"} {
				a := h.exclusive("A").on(name)
				a.req.Owner = h.owner("o" + strconv.Itoa(len(held)))
				a.hold()
				h.exclusive("B").on(name).refused(store.ErrHeld)
				held = append(held, a)
			}
			for _, a := range held {
				a.release()
			}
		},
	},
	{
		name: "longest",
		says: saysNames,
		run: func(h *harness) {
			for _, fill := range []string{"x", "\xff", "\x00", "{", "%"} {
				long := h.name + strings.Repeat(fill, 1024-len(h.name))
				a, b, c := h.exclusive("A").on(long), h.exclusive("B").on(long[:1023]), h.exclusive("C").on(long[:1023]+"y")
				for _, x := range []*claim{a, b, c} {
					x.hold()
				}
				h.exclusive("D").on(long).refused(store.ErrHeld)
				for _, x := range []*claim{a, b, c} {
					x.release()
				}
			}
		},
	},
	{
		name: "odd owners",
		says: "An owner is 1 to 64 bytes of printable ASCII without spaces.",
		run: func(h *harness) {
			for i, owner := range []string{"o", longOwner, "a:b/c", "{o}", "*", "%", `"`, `\`, "a,b", "-1", "0", "~!@#$%^&*()_+`-={}|[]:;'<>?,./"} {
				name := fmt.Sprintf("%s/%d", h.name, i)
				token := h.exclusive("A").owned(owner).on(name).hold().Token
				h.exclusive("A").owned(owner).on(name).wantReentry(token, 2)
				h.exclusive("B").on(name).refused(store.ErrHeld)
			}
		},
	},
	{
		name: "odd labels",
		says: "A label has at most 128 bytes of UTF-8. ... shown by Inspect",
		run: func(h *harness) {
			for i, label := range []string{"", "host:1234", "a b\tc", "\n", `{"a":1}`, "a|b,c;d", "\x00", "%s%d", "Größe 東京", strings.Repeat("é", 64)} {
				name := fmt.Sprintf("%s/%d", h.name, i)
				for n := range 2 { // the second is a re-entry
					h.exclusive("A").on(name).label(label).hold()
					s := h.inspect(name)
					if len(s.Holders) != n+1 || s.Holders[0].Label != label || s.Holders[n].Label != label {
						h.fail(fmt.Sprintf("Inspect(%.60q)", name), fmt.Sprintf("%+v", s.Holders), fmt.Sprintf("%d holders with label %q", n+1, label))
					}
				}
			}
		},
	},
	{
		name: "ids are of one name",
		says: "For each name a store keeps its live holds",
		run: func(h *harness) {
			a, b := h.exclusive("A"), h.exclusive("B").on(h.name+"/b")
			a.hold()
			b.hold()
			a.release()
			h.exclusive("C").on(b.req.Name).refused(store.ErrHeld)
			h.exclusive("C").hold()
		},
	},
}
