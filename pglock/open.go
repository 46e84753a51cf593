package pglock

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
)

// Options are settings of a [Driver]. The zero Options are good. Clients that
// are to exclude one another need equal Schema and TablePrefix.
type Options struct {
	// Schema is where the tables are. Empty: where the search path of the
	// connections finds them, or else makes them. It is made if it is missing.
	Schema string
	// TablePrefix begins the names of the tables: lower-case letters, digits
	// and underscores, at most 32 of them. Empty: holdfast_.
	TablePrefix string
	// Listen is where to connect for LISTEN, if not to where the pool does: a
	// way past a pooler to the same server and database.
	Listen *pgx.ConnConfig

	clock string      // for tests: the expression of the store's clock
	later *[][]string // for tests: sqlline.Dialect.Later
}

var (
	prefixForm = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,31}$`)
	schemaForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_$-]{0,62}$`)
)

func (o *Options) check() error {
	if o.TablePrefix != "" && !prefixForm.MatchString(o.TablePrefix) {
		return fmt.Errorf("the prefix of tables is %q; it has to be of lower-case letters, digits and underscores, at most 32, and begin with no digit", o.TablePrefix)
	}
	if o.Schema != "" && !schemaForm.MatchString(o.Schema) {
		return fmt.Errorf("the schema is %q; it has to be of letters, digits and any of _ $ -, and begin with a letter or an underscore", o.Schema)
	}
	return nil
}

func (o *Options) prefix() string {
	if o.TablePrefix == "" {
		return "holdfast_"
	}
	return o.TablePrefix
}

// tables begins the names of the tables in statements.
func (o *Options) tables() string {
	if o.Schema == "" {
		return o.prefix()
	}
	return quote(o.Schema) + "." + o.prefix()
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// New returns a driver on a pool, which stays open when the driver is closed.
// A nil o is the zero Options. It sends nothing: the tables are looked at, and
// made if there are none, by the first request.
//
// The pool may be small: requests take a connection for the time of one short
// transaction. The connection for LISTEN is not one of the pool's.
func New(pool *pgxpool.Pool, o *Options) (*Driver, error) {
	if o == nil {
		o = new(Options)
	}
	if pool == nil {
		return nil, driver.Errorf(driver.Refused, "the pool is nil")
	}
	if err := o.check(); err != nil {
		return nil, driver.Wrap(driver.Refused, err)
	}
	return newDriver(pool, false, o), nil
}

// Open connects to a database by a URL:
//
//	postgres://user:password@host:port/database?option=value&…
//
// with the options of libpq that pgx has (sslmode, sslrootcert, sslcert,
// sslkey, connect_timeout, target_session_attrs, passfile, service, …), several
// hosts separated by commas, pgx's pool_max_conns and other pool_… options,
// application_name and search_path, and those of this package:
//
//	schema=NAME         Options.Schema
//	table_prefix=NAME   Options.TablePrefix
//	listen=HOST:PORT    where to connect for LISTEN, see Options.Listen
//
// Other options are refused. With several hosts and no target_session_attrs,
// the one that takes writes is chosen. Open makes one connection, and makes the
// tables if there are none.
func Open(ctx context.Context, rawURL string) (*Driver, error) {
	config, o, err := parseURL(rawURL)
	if err != nil {
		return nil, driver.Wrap(driver.Refused, err)
	}
	return open(ctx, config, o)
}

func open(ctx context.Context, config *pgxpool.Config, o *Options) (*Driver, error) {
	if err := driver.Before(ctx); err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, driver.Wrap(driver.Refused, err)
	}
	d := newDriver(pool, true, o)
	if err := d.r.Begin(ctx); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// OptionsOf returns the options of this package that a URL for [Open] has. It
// sends nothing.
func OptionsOf(rawURL string) (*Options, error) {
	_, o, err := parseURL(rawURL)
	return o, driver.Wrap(driver.Refused, err)
}

// passed are the options of a URL that are not for pgx to judge, because it
// sends what it does not know to the server.
var passed = []string{
	"host", "port", "dbname", "database", "user", "password", "passfile", "connect_timeout",
	"sslmode", "sslkey", "sslcert", "sslrootcert", "sslnegotiation", "sslpassword", "sslsni", "sslcertmode",
	"krbspn", "krbsrvname", "target_session_attrs", "service", "servicefile",
	"min_protocol_version", "max_protocol_version", "channel_binding", "require_auth",
	"pool_max_conns", "pool_min_conns", "pool_min_idle_conns", "pool_max_conn_lifetime", "pool_max_conn_lifetime_jitter",
	"pool_max_conn_idle_time", "pool_health_check_period", "pool_ping_timeout",
	"application_name", "search_path",
}

func parseURL(rawURL string) (*pgxpool.Config, *Options, error) {
	scheme, _, _ := strings.Cut(rawURL, "://")
	if scheme != "postgres" && scheme != "postgresql" {
		return nil, nil, errors.New("a URL of this store begins with postgres:// or postgresql://")
	}
	// Parts of a URL that cannot be read may be a password: say nothing of it.
	rest, query, _ := strings.Cut(rawURL, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, nil, errors.New("the options of the URL cannot be read: a percent sign is written %25, a semicolon %3B")
	}
	o := new(Options)
	listen := ""
	for key, vs := range values {
		if len(vs) > 1 {
			return nil, nil, fmt.Errorf("option %s is given %d times", key, len(vs))
		}
		switch key {
		case "schema":
			o.Schema = vs[0]
		case "table_prefix":
			o.TablePrefix = vs[0]
		case "listen":
			listen = vs[0]
		default:
			if !slices.Contains(passed, key) {
				return nil, nil, fmt.Errorf("unknown option %q: there are schema, table_prefix and listen, those of libpq that pgx has, "+
					"pool_max_conns and the like, application_name and search_path", key)
			}
			continue
		}
		values.Del(key)
	}
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	config, err := pgxpool.ParseConfig(rest + "?" + values.Encode())
	if err != nil {
		return nil, nil, fault(err)
	}
	if len(config.ConnConfig.Fallbacks) > 0 && values.Get("target_session_attrs") == "" && severalHosts(config.ConnConfig) {
		config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "holdfast"
	}
	if listen != "" {
		if o.Listen, err = directly(rest, listen, values); err != nil {
			return nil, nil, err
		}
	}
	return config, o, nil
}

func severalHosts(c *pgx.ConnConfig) bool {
	return slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool {
		return f.Host != c.Host || f.Port != c.Port
	})
}

// directly returns the configuration for another host.
func directly(rest, listen string, values url.Values) (*pgx.ConnConfig, error) {
	u, err := url.Parse(rest)
	if err != nil {
		return nil, errors.New("option listen needs a URL of one host")
	}
	if strings.ContainsAny(listen, "/@?# ") {
		return nil, errors.New("option listen is HOST:PORT")
	}
	u.Host = listen
	for key := range values {
		if strings.HasPrefix(key, "pool_") {
			values.Del(key)
		}
	}
	u.RawQuery = values.Encode()
	c, err := pgx.ParseConfig(u.String())
	if err != nil {
		return nil, fault(err)
	}
	return c, nil
}

// fault is what pgx says of a URL, without the URL.
func fault(err error) error {
	if e, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		if inner := e.Unwrap(); inner != nil {
			if _, bad := errors.AsType[*url.Error](inner); !bad {
				return fmt.Errorf("the URL cannot be used: %w", inner)
			}
		}
	}
	return errors.New("the URL cannot be read: in a password, write each of : / ? # [ ] @ % as a percent sign and two hex digits")
}
