package anylock

import (
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/mysqllock"
	"github.com/holdfast-go/holdfast/pglock"
	"github.com/holdfast-go/holdfast/sqlitelock"
)

// schemas has, by scheme, the function that returns the SQL of a store's tables,
// for a URL or, if it is empty, for a URL without options.
var schemas = map[string]func(url string) (string, error){
	"sqlite":     func(string) (string, error) { return sqlitelock.Schema(), nil },
	"postgres":   schema(pglock.OptionsOf, pglock.Schema),
	"postgresql": schema(pglock.OptionsOf, pglock.Schema),
	"mysql":      schema(mysqllock.OptionsOf, mysqllock.Schema),
	"mariadb":    schema(mysqllock.OptionsOf, mysqllock.Schema),
}

func schema[O any](parse func(url string) (*O, error), text func(*O) (string, error)) func(string) (string, error) {
	return func(url string) (string, error) {
		o := new(O)
		if url != "" {
			var err error
			if o, err = parse(url); err != nil {
				return "", err
			}
		}
		return text(o)
	}
}

// Schema returns the SQL statements that make the tables of a store, for programs
// that may not make them. The store is given as a URL, of which only the options
// count, or as a scheme alone: mysql, postgres, sqlite. Schema sends nothing. It
// returns an error if the store has no tables.
func Schema(store string) (string, error) {
	scheme, url := strings.ToLower(store), ""
	if strings.Contains(store, ":") {
		s, clean, err := storeOf(store)
		if err != nil {
			return "", err
		}
		scheme, url = s.scheme, clean
	}
	text, ok := schemas[scheme]
	if !ok {
		if len(scheme) > maxScheme {
			scheme = "this"
		}
		return "", fmt.Errorf("anylock: %s has no tables; mysql, postgres and sqlite have", scheme)
	}
	statements, err := text(url)
	if err != nil {
		return "", redactError(err, url)
	}
	return statements, nil
}
