package cli

import (
	"context"
	"flag"
	"fmt"
	"strings"
)

func completionCommand() command {
	return command{
		name: "completion", args: "bash|zsh|fish", short: "print the completion of a shell",
		long: `  bash: source <(dlock completion bash)
  zsh:  source <(dlock completion zsh)
  fish: dlock completion fish | source

Names of locks are completed too, from the store in DLOCK_STORE.
`,
		setup: func(p *Program, f *flag.FlagSet) action {
			return func(_ context.Context, args []string) (int, error) {
				shell, err := one(args)
				if err != nil {
					return 0, usage("want bash, zsh or fish")
				}
				var script string
				switch shell {
				case "bash":
					script = bashCompletion(p)
				case "zsh":
					script = "autoload -U +X bashcompinit && bashcompinit\n" + bashCompletion(p)
				case "fish":
					script = fishCompletion(p)
				default:
					return 0, usage("there is no completion for %q, only for bash, zsh and fish", shell)
				}
				_, err = fmt.Fprint(p.Stdout, script)
				return exitOK, err
			}
		},
	}
}

// flagsOf returns the flags of a command.
func flagsOf(p *Program, c command) (names []string) {
	f := flag.NewFlagSet(c.name, flag.ContinueOnError)
	c.setup(p, f)
	f.VisitAll(func(fl *flag.Flag) { names = append(names, "--"+fl.Name) })
	return names
}

// takesName reports whether the first argument of a command is the name of a lock.
func takesName(c command) bool { return strings.Contains(c.args, "NAME") }

// shown are the commands that help shows.
func shown() (list []command) {
	for _, c := range commands() {
		if !c.hidden {
			list = append(list, c)
		}
	}
	return list
}

// bashCompletion is the script for bash and, with bashcompinit, for zsh. Names of locks come
// from any process. compgen -W would run the commands in them, so the script compares them
// itself, and it inserts them quoted. A name that begins with - would be read as a flag, and
// a line in quotes is not the name itself.
func bashCompletion(p *Program) string {
	var words, cases strings.Builder
	for _, c := range shown() {
		words.WriteString(c.name + " ")
		names := ""
		if takesName(c) {
			names = "names=yes "
		}
		list := flagsOf(p, c)
		if c.name == "completion" {
			list = append(list, "bash", "zsh", "fish")
		}
		fmt.Fprintf(&cases, "    %s) %slist=\"%s\" ;;\n", c.name, names, strings.Join(list, " "))
	}
	return `_dlock() {
  local cur="${COMP_WORDS[COMP_CWORD]}" list names name quoted
  if [ "$COMP_CWORD" = 1 ]; then
    list="` + strings.TrimSpace(words.String()) + `"
  else
    case "${COMP_WORDS[1]}" in
` + cases.String() + `    esac
  fi
  COMPREPLY=($(compgen -W "$list" -- "$cur"))
  [ -n "$names" ] && [ -n "$DLOCK_STORE" ] || return
  while IFS= read -r name; do
    printf -v quoted %q "$name"
    [[ $name == [-\"]* || $quoted != "$cur"* ]] || COMPREPLY+=("$quoted")
  done < <(timeout 2 dlock list --names 2>/dev/null)
}
complete -o default -F _dlock dlock
`
}

func fishCompletion(p *Program) string {
	var b strings.Builder
	b.WriteString("complete -c dlock -f\n")
	for _, c := range shown() {
		fmt.Fprintf(&b, "complete -c dlock -n __fish_use_subcommand -a %s -d '%s'\n", c.name, c.short)
		seen := fmt.Sprintf("complete -c dlock -n '__fish_seen_subcommand_from %s'", c.name)
		for _, name := range flagsOf(p, c) {
			fmt.Fprintf(&b, "%s -l %s\n", seen, strings.TrimPrefix(name, "--"))
		}
		if takesName(c) {
			fmt.Fprintf(&b, "%s -a '(test -n \"$DLOCK_STORE\"; and timeout 2 dlock list --names 2>/dev/null)'\n", seen)
		}
	}
	b.WriteString("complete -c dlock -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n")
	b.WriteString("complete -c dlock -n '__fish_seen_subcommand_from run' -F\n")
	return b.String()
}
