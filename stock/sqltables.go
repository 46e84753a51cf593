package stock

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// sqlLayout is the number of the tables' layout. Clients of another layout are
// refused.
const sqlLayout = 1

var prefixForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z_][a-z0-9_]{0,31}$`) })

// tableNames returns the tables, that of the layout last.
func tableNames(prefix string) []string {
	return []string{prefix + "product", prefix + "shard", prefix + "receipt", prefix + "layout"}
}

// tables returns the statements that create the tables.
func (d *dialect) tables(prefix string) []string {
	all := []string{
		fmt.Sprintf("CREATE TABLE IF NOT EXISTS %sproduct (sku %s NOT NULL PRIMARY KEY, directory %s NOT NULL)%s",
			prefix, d.key, d.binary, d.options),
		// transfers is those from and to other shards, as JSON; directory is that of
		// the epoch.
		fmt.Sprintf("CREATE TABLE IF NOT EXISTS %[1]sshard (id %[2]s, sku %[3]s NOT NULL, i %[4]s NOT NULL, epoch %[4]s NOT NULL, version %[4]s NOT NULL, "+
			"free %[4]s NOT NULL, held %[4]s NOT NULL, sold %[4]s NOT NULL, back %[4]s NOT NULL, more %[4]s NOT NULL, "+
			"transfers %[5]s NOT NULL, directory %[5]s NOT NULL, UNIQUE (sku, i))%[6]s", prefix, d.id, d.key, d.number, d.binary, d.options),
		// open is 1 for reservations, lapsed ones included. ends is when the lease
		// ends, or the receipt.
		fmt.Sprintf("CREATE TABLE IF NOT EXISTS %[1]sreceipt (shard %[2]s NOT NULL, sale %[3]s NOT NULL, state CHAR(1) NOT NULL, units %[2]s NOT NULL, "+
			"open SMALLINT NOT NULL, ends %[2]s NOT NULL, PRIMARY KEY (%[4]s%[5]s", prefix, d.number, d.key, d.index, d.options),
	}
	if d == postgres {
		// No index begins with the shard alone. While the table has no statistics, a
		// plan would read all receipts of a shard by it.
		all = append(all, fmt.Sprintf("CREATE INDEX IF NOT EXISTS %[1]sends ON %[1]sreceipt (shard, ends) WHERE open = 0", prefix),
			fmt.Sprintf("CREATE INDEX IF NOT EXISTS %[1]sdue ON %[1]sreceipt (shard, ends) WHERE open = 1", prefix))
	}
	return append(all, fmt.Sprintf("CREATE TABLE IF NOT EXISTS %slayout (one %s NOT NULL PRIMARY KEY, layout %[2]s NOT NULL)%[3]s", prefix, d.number, d.options),
		fmt.Sprintf(d.once, fmt.Sprintf("INTO %slayout (one, layout) VALUES (1, %d)", prefix, sqlLayout)))
}

// Schema returns the statements that create the tables of NewSQL, as text for
// the database's own command. It is for administrators of programs that may not
// create tables. The database is "postgres", "mysql" or "mariadb".
func Schema(o *Options, database string) (string, error) {
	d := map[string]*dialect{"postgres": postgres, "mysql": mysql, "mariadb": mariadb}[database]
	if d == nil {
		return "", fmt.Errorf("stock: database %q: use postgres, mysql or mariadb", database)
	}
	options, err := o.forTables()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, statement := range d.tables(options.Prefix) {
		b.WriteString(statement + ";\n")
	}
	b.WriteString("-- Rights of the user under whom programs sell, here app:\n")
	for _, table := range tableNames(options.Prefix) {
		fmt.Fprintf(&b, "-- GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO app;\n", table)
	}
	return b.String(), nil
}

// forTables returns the options with their defaults, and refuses a prefix that no
// table can have.
func (o *Options) forTables() (Options, error) {
	options, err := o.checked()
	if err == nil && !prefixForm().MatchString(options.Prefix) {
		err = fmt.Errorf("stock: invalid prefix %q of tables: use at most 32 lower-case letters, digits and underscores, and no digit at the beginning", options.Prefix)
	}
	return options, err
}

// advisoryKey makes clients that create tables in PostgreSQL take turns.
const advisoryKey = 0x686f6c6473746f63 // "holdstoc"

// prepare checks the layout of the tables, and creates them if there are none. Where a
// statement that creates a table commits, as in MySQL, another client may be about to write
// the layout: prepare then does what that client does.
func (s *sqlServers) prepare(ctx context.Context, c *sqlConns) error {
	layout, err := s.layout(ctx, c)
	if isMissingTable(err) || err == nil && layout == 0 {
		if err = s.create(ctx, c); err != nil {
			if _, state := sqlState(err); strings.HasPrefix(state, "42") {
				return driver.Errorf(driver.Refused, "the tables of the stock are missing, and this user may not create them; "+
					"ask an administrator to run the output of stock.Schema: %w", errors.Unwrap(err))
			}
			return err
		}
		layout, err = s.layout(ctx, c)
	}
	if err == nil && layout != sqlLayout {
		return driver.Errorf(driver.Refused, "the tables of the stock have layout %d, and this version needs layout %d", layout, sqlLayout)
	}
	return err
}

func isMissingTable(err error) bool {
	_, state := sqlState(err)
	return state == "42P01" || state == "42S02"
}

func (s *sqlServers) layout(ctx context.Context, c *sqlConns) (layout int64, err error) {
	err = c.do(ctx, func(ctx context.Context, c *sqlConn) error {
		err := c.QueryRowContext(ctx, "SELECT coalesce(max(layout), 0) FROM "+s.prefix+"layout").Scan(&layout)
		return errors.Join(err, c.finishReading(ctx))
	})
	return layout, err
}

func (s *sqlServers) create(ctx context.Context, c *sqlConns) error {
	return c.do(ctx, func(ctx context.Context, c *sqlConn) error {
		if err := c.begin(ctx, fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", advisoryKey)); err != nil {
			return err
		}
		return c.end(ctx, c.kind.tables(s.prefix)...)
	})
}
