//go:build !unix

// Package cli is the command holdfast, on systems without process groups and
// signals.
package cli

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"
)

// New returns the command with the verb version alone: this system lacks process
// groups and signals, by which it ends what runs without the lock.
func New() *cobra.Command {
	return &cobra.Command{
		Use: "holdfast", SilenceErrors: true, SilenceUsage: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (args[0] == "version" || args[0] == "--version") {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), ownVersion())
				return err
			}
			return errors.New("the command does not run on " + runtime.GOOS +
				", which lacks process groups and signals; the library does: see docs/README.md#systems")
		},
	}
}

// Main prints the version, or that the command does not run here, and returns the
// exit status.
func Main() int {
	if err := New().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "holdfast:", err)
		return 70
	}
	return 0
}
