//go:build unix

package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/anylock"
)

// Completion by cobra asks a verb for words with the keys already typed. A
// person waits for the answer, so it is short and may be nothing.
const (
	completionTime = time.Second
	completionMost = 200
)

// completeNames offers the names of locks in use that begin with what was typed.
// Names that a shell would have to quote, or that are not plain text, are left
// out.
func (a *app) completeNames(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
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
		if err != nil || len(names) == completionMost {
			break
		}
		if shown(name) == name {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}
