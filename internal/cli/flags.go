//go:build unix

package cli

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError returns the error of a command line whose flags cannot be parsed.
func flagError(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return usage("%w", err)
	}
	name, value := "--"+bad.GetFlag().Name, shown(bad.GetValue())
	switch bad.GetFlag().Value.Type() {
	case "duration":
		if _, err := time.ParseDuration(bad.GetValue() + "s"); err == nil {
			return usage("%s %s has no unit: write %ss for seconds, or %sm for minutes", name, value, value, value)
		}
		return usage("%s %s is not a duration, such as 500ms, 30s or 1m30s", name, value)
	case "int", "uint64":
		return usage("%s %s is not a number that it takes", name, value)
	}
	return usage("%w", err)
}

// oneOf returns an error if more than one of the flags is given.
func oneOf(cmd *cobra.Command, names ...string) error {
	var given []string
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if len(given) < 2 {
		return nil
	}
	last := len(given) - 1
	return usage("%s and %s cannot be given together", strings.Join(given[:last], ", "), given[last])
}
