package cli

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
)

var versionCommand = command{
	name: "version", short: "print the version of dlock",
	setup: func(p *Program, f *flag.FlagSet) action {
		asJSON := f.Bool("json", false, "print JSON")
		return func(context.Context, []string) (int, error) {
			v, revision := version()
			if *asJSON {
				return exitOK, p.printJSON(map[string]string{"version": v, "revision": revision, "go": runtime.Version()})
			}
			if revision != "" {
				v += " (" + revision + ")"
			}
			_, err := fmt.Fprintf(p.Stdout, "dlock %s, %s %s/%s\n", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return exitOK, err
		}
	},
}

// version is that of the module as go install recorded it, and the commit if it is known.
func version() (version, revision string) {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)", ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value[:min(12, len(s.Value))]
		}
	}
	return info.Main.Version, revision
}
