// Command dlock runs commands under a lock, and shows and breaks locks. Its page is
// docs/cli.md; dlock help lists the commands.
package main

import (
	"os"

	"github.com/dlock-go/dlock/internal/cli"
)

func main() {
	os.Exit(cli.New().Run(os.Args[1:]))
}
