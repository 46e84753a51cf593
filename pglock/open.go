package pglock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// Options are settings of a [Driver]. The zero Options are valid. Clients
// exclude one another only if they use the same Schema and TablePrefix.
type Options struct {
	// Schema is the schema of the tables; it is created if it is missing.
	// Empty: the connections' search path decides where tables are found and
	// created.
	Schema string
	// TablePrefix begins the names of the tables: lower-case letters, digits
	// and underscores, at most 32 of them. Empty: holdfast_.
	TablePrefix string
	// Listen is the configuration of the connection for LISTEN, if it differs
	// from the pool's: a way past a pooler to the same server and database.
	Listen *pgx.ConnConfig

	clock string      // for tests: the expression of the store's clock
	later *[][]string // for tests: sqlqueue.Dialect.ExtraChanges
}

var (
	prefixForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z_][a-z0-9_]{0,31}$`) })
	schemaForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_$-]{0,62}$`) })
)

func (o *Options) check() error {
	if o.TablePrefix != "" && !prefixForm().MatchString(o.TablePrefix) {
		return fmt.Errorf("invalid table prefix %q: use at most 32 lower-case letters, digits and underscores, and no digit at the beginning", o.TablePrefix)
	}
	if o.Schema != "" && !schemaForm().MatchString(o.Schema) {
		return fmt.Errorf("invalid schema %q: use letters, digits and any of _ $ -, and begin with a letter or an underscore", o.Schema)
	}
	return nil
}

func (o *Options) prefix() string {
	if o.TablePrefix == "" {
		return "holdfast_"
	}
	return o.TablePrefix
}

// tables returns the beginning of the tables' names in statements.
func (o *Options) tables() string {
	if o.Schema == "" {
		return o.prefix()
	}
	return quote(o.Schema) + "." + o.prefix()
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// New returns a driver on a pool, which stays open when the driver is closed. A
// nil o is the zero Options. New sends nothing: the first request checks the
// tables, and creates them if there are none.
//
// The pool may be small: a request takes a connection for one short
// transaction. The connection for LISTEN does not come from the pool, nor does a
// spare one that renewals and releases take where the pool has none free.
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
// the driver chooses a host that takes writes. Open makes one connection, and
// creates the tables if there are none.
//
// An attempt to connect, up to the server's consent, takes at most
// connect_timeout, which defaults to 5 s, and to less with more than two hosts.
// Open returns an error unless the first answer comes within
// [driver.OpenLimit], or within connect_timeout for each host if that is
// longer.
func Open(ctx context.Context, rawURL string) (*Driver, error) {
	config, o, err := parseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("pglock: %w", err)
	}
	d, err := open(ctx, config, o)
	if err != nil {
		return nil, fmt.Errorf("pglock: %s: %w", strings.Join(addresses(config.ConnConfig), ","), err)
	}
	return d, nil
}

func open(ctx context.Context, config *pgxpool.Config, o *Options) (*Driver, error) {
	if err := driver.Before(ctx); err != nil {
		return nil, err
	}
	d := newDriver(nil, true, o)
	d.db.track(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, driver.Wrap(driver.Refused, err)
	}
	d.db.pool = pool
	err = d.db.reach(ctx, config.ConnConfig)
	if err == nil {
		err = d.db.tables.Begin(ctx)
	}
	if code(err) == noRights {
		if list, e := d.db.missingRights(ctx); e == nil && list != "" {
			err = driver.Errorf(driver.Refused, "this user lacks %s: %w", list, err)
		}
	}
	if err != nil {
		_ = d.Close()
		if code(err) == wrongPassword && config.ConnConfig.Password == "" {
			err = driver.Errorf(driver.Refused, "the server wants a password: write it before the host of the URL, as user:password@host: %w", err)
		}
		return nil, err
	}
	return d, nil
}

// reach waits for the first answer of the server itself: a pooler may accept a
// connection on its own.
func (d *database) reach(ctx context.Context, config *pgx.ConnConfig) error {
	ctx, cancel := sqlqueue.Until(ctx, max(driver.OpenLimit, config.ConnectTimeout*time.Duration(len(addresses(config)))))
	defer cancel()
	c, err := d.pool.Acquire(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return connError(ctx, driver.Unavailable, err)
		}
		return notConnected(err)
	}
	defer c.Release()
	return classify(ctx, c.Ping(ctx), false)
}

// connectTime returns the time for an attempt to connect where no option sets
// it. The attempts at all hosts together must fit into driver.OpenLimit.
func connectTime(hosts int) time.Duration {
	return min(5*time.Second, driver.OpenLimit/time.Duration(hosts))
}

// addresses returns the hosts of a configuration with their ports, or the paths
// of sockets, each once.
func addresses(c *pgx.ConnConfig) []string {
	_, first := pgconn.NetworkAddress(c.Host, c.Port)
	all := []string{first}
	for _, f := range c.Fallbacks {
		if _, next := pgconn.NetworkAddress(f.Host, f.Port); !slices.Contains(all, next) {
			all = append(all, next)
		}
	}
	return all
}

// OptionsOf returns the options of this package in a URL for [Open]. It sends
// nothing.
func OptionsOf(rawURL string) (*Options, error) {
	_, o, err := parseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("pglock: %w", err)
	}
	return o, nil
}

// passedOptions are the accepted options of a URL that are passed on to pgx.
// The list is needed because pgx sends unknown options to the server.
var passedOptions = []string{
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
	// An error must not quote a URL that cannot be parsed: any part of it may
	// be a password.
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
			if !slices.Contains(passedOptions, key) {
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
		return nil, nil, optionError(rest, values, err)
	}
	hosts := len(addresses(config.ConnConfig))
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTime(hosts)
	}
	if hosts > 1 && values.Get("target_session_attrs") == "" {
		config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "holdfast"
	}
	if listen != "" {
		if o.Listen, err = listenConfig(rest, listen, values); err != nil {
			return nil, nil, err
		}
	}
	return config, o, nil
}

// listenConfig returns the configuration for the host of the option listen.
func listenConfig(rest, listen string, values url.Values) (*pgx.ConnConfig, error) {
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
		return nil, urlError(err)
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTime(1)
	}
	return c, nil
}

// optionError returns an error that names the option without which pgx accepts
// the URL; pgx itself names few of them. The error contains no option's value
// that may be a secret.
func optionError(rest string, values url.Values, err error) error {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		others := maps.Clone(values)
		others.Del(key)
		if _, with := pgxpool.ParseConfig(rest + "?" + others.Encode()); with != nil {
			continue
		}
		if need := optionForms[key]; need != "" {
			return fmt.Errorf("option %s is not %s", key, need)
		}
		if strings.HasPrefix(key, "pool_") {
			return fmt.Errorf("option %s is neither a number in its range, such as 4, nor a time with its unit, such as 30s", key)
		}
		if e, ok := errors.AsType[*pgconn.ParseConfigError](err); ok && e.Unwrap() != nil {
			return fmt.Errorf("option %s cannot be used: %w", key, e.Unwrap())
		}
		return fmt.Errorf("option %s cannot be used", key)
	}
	return urlError(err)
}

// optionForms describe the valid values of options where pgx does not.
var optionForms = map[string]string{
	"connect_timeout":      "a number of whole seconds, such as 5",
	"port":                 "a number from 1 to 65535",
	"sslmode":              "one of disable, allow, prefer, require, verify-ca and verify-full",
	"target_session_attrs": "one of any, read-write, read-only, primary, standby and prefer-standby",
	"channel_binding":      "one of disable, prefer and require",
	"sslnegotiation":       "one of postgres and direct",
}

// urlError returns the error of pgx about a URL, without the URL.
func urlError(err error) error {
	if e, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		if inner := e.Unwrap(); inner != nil {
			if _, bad := errors.AsType[*url.Error](inner); !bad {
				return fmt.Errorf("the URL cannot be used: %w", inner)
			}
		}
	}
	return errors.New("the URL cannot be read: in a password, write each of : / ? # [ ] @ % as a percent sign and two hex digits")
}
