// Command holdfast holds locks that processes and machines share. See
// holdfast --help, or docs/cli.md.
package main

import (
	"os"

	"github.com/holdfast-go/holdfast/internal/cli"
)

func main() { os.Exit(cli.Main()) }
