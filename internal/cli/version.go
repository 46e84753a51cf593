//go:build unix

package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version [flags]",
		Short: "Print the version of holdfast",
		Long: `Version prints the version of holdfast, the revision it was built from where that
is known, and the version of Go and the system it was built for and with.`,
		Example: `  holdfast version
  holdfast version --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("version takes no arguments")
			}
			return a.writeVersion()
		},
	}
}

// writeVersion writes the version to standard output.
func (a *app) writeVersion() error {
	v := ownVersion()
	if a.console.json {
		return a.console.outJSON(v)
	}
	_, err := fmt.Fprintln(a.console.stdout(), v)
	return err
}
