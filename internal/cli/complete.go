//go:build unix

package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/anylock"
)

// Cobra's completion asks a verb for the words that continue the typed text. A
// person waits for the answer, so it is bounded in time and length, and may be
// empty.
const (
	completionTimeout = time.Second
	maxCompletions    = 200
)

// initCompletion adds cobra's verb completion, which keeps the standard output
// that is set when the verb is added.
func (a *app) initCompletion(args []string) {
	a.root.InitDefaultCompletionCmd(args...)
	for _, cmd := range a.root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Args, cmd.RunE = cobra.ArbitraryArgs, unknownShell
		}
	}
}

// unknownShell runs the verb completion when no known shell is named.
func unknownShell(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	var shells []string
	for _, c := range cmd.Commands() {
		shells = append(shells, c.Name())
	}
	return usage("there is no completion for %s, but for %s", shown(args[0]), strings.Join(shells, ", "))
}

// completeNames offers the names of locks in use that begin with what was typed.
// It leaves out names that a shell would have to quote or that are not plain
// text.
func (a *app) completeNames(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	l, err := a.locate()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	client, err := anylock.Open(ctx, l.url) // a.open might warn, in the middle of the line
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer client.Close()
	var names []string
	for name, err := range client.Names(ctx, typed) {
		if err != nil || len(names) == maxCompletions {
			break
		}
		if shown(name) == name {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}
