//go:build unix

package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/internal/cli/job"
)

// guardVerb is the verb by which run starts the guard of its command.
const guardVerb = "guard"

func (a *app) guard() *cobra.Command {
	return &cobra.Command{
		Use:    guardVerb,
		Short:  "Watch over the command of a run; started by run itself",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return job.Guard(os.Stdin, os.Stdout, a.stderr())
		},
	}
}
