//go:build unix

package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/lockserver/lockauth"
)

// quoteJSON returns text as a string of JSON.
func quoteJSON(text string) []byte {
	b, err := json.Marshal(text)
	if err != nil {
		return []byte(`""`) // cannot happen: every string has a form
	}
	return b
}

// newTokenJSON is the output of serve token with --json.
type newTokenJSON struct {
	Name  string `json:"name"`
	Token string `json:"token"`
	Hash  string `json:"token_sha256"`
}

func (a *app) serveToken() *cobra.Command {
	return &cobra.Command{
		Use:   "token NAME",
		Short: "Make a token for a client of serve",
		Long: `Token prints a new token of 256 random bits for the principal NAME to standard output,
and an entry for the file of serve --auth, with its hash, to standard error. The token
is kept nowhere. A principal may have two hashes, so that a new token can be handed
out before the old one is taken away.

With --json, standard output has one object with both.`,
		Example: `  umask 077; holdfast serve token billing > billing.token`,
		RunE: func(_ *cobra.Command, args []string) error {
			name, err := exactlyOne("NAME", args)
			if err != nil {
				return err
			}
			if err := lockauth.CheckName(name); err != nil {
				return usage("%w", err)
			}
			token, hash := lockauth.NewToken()
			if a.console.json {
				return a.console.outJSON(newTokenJSON{name, token, hash})
			}
			if _, err := fmt.Fprintln(a.console.stdout(), token); err != nil {
				return err
			}
			fmt.Fprintf(a.console.stderr(), `{"name": %s, "token_sha256": ["%s"], "rights": [{"prefix": %s, "may": ["read", "lock"]}]}`+"\n",
				quoteJSON(name), hash, quoteJSON(name+"/"))
			return nil
		},
	}
}
