//go:build unix

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/anylock"
)

func (a *app) schema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema mysql|postgres|sqlite [flags]",
		Short: "Print the SQL that makes a database's tables",
		Long: `Schema prints the SQL statements that make the tables of a store in a database,
and after them, as comments, the rights that programs need. Programs make the
tables by themselves; this is for those that may not.

With --store, --store-file or HOLDFAST_STORE the options of that URL count (the
prefix of the tables, and PostgreSQL's schema), and the name of the database may
be left out. Nothing is sent to any server.`,
		Example: `  holdfast schema mysql | mysql -u root app
  holdfast schema postgres | psql app
  holdfast schema --store 'mysql://app@db/app?table_prefix=locks_'`,
		ValidArgs: []string{"mysql", "postgres", "sqlite"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("schema takes one database: mysql, postgres or sqlite")
			}
			store := strings.Join(args, "")
			if strings.ContainsAny(store, ":/@") {
				return usage("schema takes the name of a database, and a URL by --store")
			}
			if a.storeGiven() {
				l, err := a.locate()
				if err != nil {
					return err
				}
				scheme, _, _ := strings.Cut(l.url, ":")
				if store == "" || sameDatabase(store, scheme) {
					store = l.url
				}
			}
			if store == "" {
				return usage("schema needs the name of a database: mysql, postgres or sqlite")
			}
			text, err := anylock.Schema(store)
			if err != nil {
				return usage("%w", err)
			}
			if a.console.json {
				return a.console.outJSON(struct {
					SQL string `json:"sql"`
				}{text})
			}
			_, err = fmt.Fprint(a.console.stdout(), text)
			return err
		},
	}
}

// sameDatabase reports whether a name and the scheme of a URL stand for the same
// kind of database.
func sameDatabase(name, scheme string) bool {
	alias := map[string]string{"mariadb": "mysql", "postgresql": "postgres"}
	of := func(s string) string {
		s = strings.ToLower(s)
		if to, ok := alias[s]; ok {
			return to
		}
		return s
	}
	return of(name) == of(scheme)
}
