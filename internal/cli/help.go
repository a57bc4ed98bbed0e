package cli

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"text/tabwriter"
)

func helpCommand() command {
	return command{
		name: "help", args: "[COMMAND]", short: "show the commands, or the flags of one",
		setup: func(p *Program, f *flag.FlagSet) action {
			return func(_ context.Context, args []string) (int, error) {
				name, err := atMostOne(args)
				if err != nil {
					return 0, err
				}
				if name == "" {
					_, err := fmt.Fprint(p.Stdout, overview())
					return exitOK, err
				}
				c, ok := find(name)
				if !ok {
					return 0, usage("there is no command %q", name)
				}
				_, err = fmt.Fprint(p.Stdout, help(p, c))
				return exitOK, err
			}
		},
	}
}

// overview is what dlock prints without a command.
func overview() string {
	var b strings.Builder
	b.WriteString("dlock runs commands under distributed locks, and shows and breaks locks.\n\nUsage: dlock COMMAND [FLAGS] [ARGUMENTS]\n\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, c := range shown() {
		fmt.Fprintf(t, "  %s\t%s\n", c.name, c.short)
	}
	t.Flush()
	b.WriteString("\nThe store is a URL in --store or DLOCK_STORE:\n" + storeHelp + "\n" + exitTable + "\ndlock help COMMAND shows the flags of a command.\n")
	return b.String()
}

const storeHelp = `  redis://[user:password@]host[:6379][/database]   also rediss://, for TLS
  etcd://host[:2379][,host...][/prefix]            also etcd+srv://domain, for members found by DNS
  postgres://user:password@host/database           with the table of postgres.Schema
  zk://host[:2181][,host...][/chroot]
  "redis://a redis://b redis://c"                  a quorum of independent servers
`

// help is what dlock help prints of one command.
func help(p *Program, c command) string {
	var b strings.Builder
	f := flag.NewFlagSet("dlock "+c.name, flag.ContinueOnError)
	c.setup(p, f)
	fmt.Fprintf(&b, "dlock %s: %s\n\nUsage: dlock %s", c.name, c.short, c.name)
	some := false
	f.VisitAll(func(*flag.Flag) { some = true })
	if some {
		b.WriteString(" [FLAGS]")
	}
	if c.args != "" {
		b.WriteString(" " + c.args)
	}
	b.WriteString("\n")
	if c.long != "" {
		b.WriteString("\n" + c.long)
	}
	if some {
		b.WriteString("\nFlags:\n")
		f.VisitAll(func(fl *flag.Flag) {
			value, text := flag.UnquoteUsage(fl)
			b.WriteString(strings.TrimRight("  --"+fl.Name+" "+value, " ") + "\n        " + text)
			if fl.DefValue != "" && fl.DefValue != "0" && fl.DefValue != "false" && fl.DefValue != "0s" {
				b.WriteString(" (default " + fl.DefValue + ")")
			}
			b.WriteString("\n")
		})
	}
	return b.String()
}
