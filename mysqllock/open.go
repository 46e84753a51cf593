package mysqllock

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// Options are settings of a [Driver]. The zero Options are valid. Clients
// exclude one another only if they use the same TablePrefix.
type Options struct {
	// TablePrefix begins the names of the tables: lower-case letters, digits
	// and underscores, at most 32 of them. Empty: holdfast_.
	TablePrefix string

	maxConns int         // of the driver's own pool; 0: one for each processor, at least 4
	clock    string      // for tests: the expression of the store's clock
	later    *[][]string // for tests: sqlqueue.Dialect.ExtraChanges
}

var prefixForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z_][a-z0-9_]{0,31}$`) })

func (o *Options) check() error {
	if o.TablePrefix != "" && !prefixForm().MatchString(o.TablePrefix) {
		return fmt.Errorf("invalid table prefix %q: use at most 32 lower-case letters, digits and underscores, and no digit at the beginning", o.TablePrefix)
	}
	return nil
}

func (o *Options) prefix() string {
	if o.TablePrefix == "" {
		return "holdfast_"
	}
	return o.TablePrefix
}

func (o *Options) conns() int {
	if o.maxConns > 0 {
		return o.maxConns
	}
	return max(4, runtime.GOMAXPROCS(0))
}

// New returns a driver on a pool of package go-sql-driver/mysql, which stays
// open when the driver is closed. A nil o is the zero Options. New sends
// nothing: the first request checks the tables, and creates them if there are
// none.
//
// The pool may be small: a request takes a connection for one short
// transaction. A client that waits for locks keeps one more of the pool's
// connections, for wake-ups, unless the pool has only one.
//
// With interpolateParams=true and multiStatements=true in the data source name,
// several statements are one round trip; [Open] sets both. Without them, each
// statement takes one or two round trips, and all else is the same.
func New(db *sql.DB, o *Options) (*Driver, error) {
	if o == nil {
		o = new(Options)
	}
	if db == nil {
		return nil, driver.Errorf(driver.Refused, "the pool is nil")
	}
	if _, ok := db.Driver().(*mysql.MySQLDriver); !ok {
		return nil, driver.Errorf(driver.Refused, "the pool's driver is %T; it must be that of github.com/go-sql-driver/mysql", db.Driver())
	}
	if err := o.check(); err != nil {
		return nil, driver.Wrap(driver.Refused, err)
	}
	return newDriver(db, db, false, o), nil
}

// Open connects to a database by a URL:
//
//	mysql://user:password@host:port/database?option=value&…
//	mariadb://…, the same
//
// with these options:
//
//	table_prefix=NAME     Options.TablePrefix
//	max_conns=N           the most connections for requests; 4 or one for each processor if not given
//	connect_timeout=5s    for one attempt to connect, up to the server's consent; 5 s if not given
//	socket=PATH           of a Unix socket, instead of host and port
//	tls=true              TLS, with the server's certificate verified. Also: preferred (TLS if the
//	                      server has it, unverified), skip-verify, and false, as if not given
//	tls_ca=FILE           certificates to trust instead of the system's; implies tls=true
//	tls_cert=FILE, tls_key=FILE   the client's certificate; imply tls=true
//	tls_server_name=NAME  the name in the server's certificate, if not the host
//
// Other options are refused. Open makes one connection, and creates the tables
// if there are none. It returns an error unless the first answer comes within
// [driver.OpenLimit], or within connect_timeout if that is longer.
func Open(ctx context.Context, rawURL string) (*Driver, error) {
	config, o, err := parseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("mysqllock: %w", err)
	}
	d, err := open(ctx, config, o)
	if err != nil {
		return nil, fmt.Errorf("mysqllock: %s: %w", config.Addr, err)
	}
	return d, nil
}

func open(ctx context.Context, config *mysql.Config, o *Options) (*Driver, error) {
	if err := driver.Before(ctx); err != nil {
		return nil, err
	}
	library, err := mysql.NewConnector(config)
	if err != nil {
		return nil, driver.Wrap(driver.Refused, err)
	}
	connector := &timedConnector{Connector: library, limit: config.Timeout}
	conns := &preparingConnector{Connector: connector}
	db, wakeupPool := sql.OpenDB(conns), sql.OpenDB(connector)
	db.SetMaxOpenConns(o.conns())
	db.SetMaxIdleConns(o.conns())
	wakeupPool.SetMaxIdleConns(0)
	d := newDriver(db, wakeupPool, true, o)
	conns.serve(&d.db)
	err = d.db.reach(ctx, max(driver.OpenLimit, config.Timeout))
	if err == nil {
		err = d.db.tables.Begin(ctx)
	}
	if err != nil {
		_ = d.Close()
		if code(err) == wrongPassword && config.Passwd == "" {
			err = driver.Errorf(driver.Refused, "the server wants a password: write it before the host of the URL, as user:password@host: %w", err)
		}
		return nil, err
	}
	return d, nil
}

// reach waits for the first answer of the server itself: a proxy may accept a
// connection on its own.
func (d *database) reach(ctx context.Context, limit time.Duration) error {
	ctx, cancel := sqlqueue.Until(ctx, limit)
	defer cancel()
	c, err := d.pool.Conn(ctx)
	if err != nil {
		return notConnected(err)
	}
	defer func() { _ = c.Close() }()
	return classify(ctx, c.PingContext(ctx), false)
}

// timedConnector is a connector whose attempts end after limit. The client
// library bounds only dialling, not the server's greeting and consent.
type timedConnector struct {
	sqldriver.Connector
	limit time.Duration
}

// Connect implements [sqldriver.Connector].
func (t *timedConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	ctx, cancel := sqlqueue.Until(ctx, t.limit)
	defer cancel()
	c, err := t.Connector.Connect(ctx)
	if err != nil && ctx.Err() != nil {
		// The client library would call the connection bad, and database/sql
		// would make another.
		return nil, context.Cause(ctx)
	}
	return c, err
}

// OptionsOf returns the options of this package in a URL for [Open]. It sends
// nothing.
func OptionsOf(rawURL string) (*Options, error) {
	_, o, err := parseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("mysqllock: %w", err)
	}
	return o, nil
}

// sqlMode is the SQL mode of the driver's own sessions, whatever the server's
// is: strict about values, and without the modes that change the meaning of
// text. With EMPTY_STRING_IS_NULL, MariaDB refuses the owner of a ticket that
// has none.
const sqlMode = "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"

// noLog drops the client library's messages about connections that end: the
// errors of requests report them.
type noLog struct{}

// Print implements mysql.Logger.
func (noLog) Print(...any) {}

func parseURL(rawURL string) (*mysql.Config, *Options, error) {
	if scheme, _, _ := strings.Cut(rawURL, "://"); scheme != "mysql" && scheme != "mariadb" {
		return nil, nil, errors.New("a URL of this store begins with mysql:// or mariadb://")
	}
	// An error must not quote a URL that cannot be parsed: any part of it may
	// be a password.
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, nil, errors.New("the URL cannot be read: in a password, write each of : / ? # [ ] @ % as a percent sign and two hex digits")
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, errors.New("the options of the URL cannot be read: a percent sign is written %25, a semicolon %3B")
	}
	config := mysql.NewConfig()
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.Net, config.Addr = "tcp", u.Host
	if u.Port() == "" {
		config.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	config.DBName = strings.TrimPrefix(u.Path, "/")
	config.Timeout = 5 * time.Second
	config.InterpolateParams, config.MultiStatements = true, true
	config.ConnectionAttributes = "program_name:holdfast"
	config.Logger = noLog{}
	config.Params = map[string]string{
		"innodb_lock_wait_timeout": strconv.Itoa(rowLockTimeout),
		"lock_wait_timeout":        strconv.Itoa(tableLockTimeout),
		"autocommit":               "1",
		"sql_mode":                 sqlMode,
	}
	o := new(Options)
	var t tlsOptions
	for key, vs := range values {
		if len(vs) > 1 {
			return nil, nil, fmt.Errorf("option %s is given %d times", key, len(vs))
		}
		if err := set(config, o, &t, key, vs[0]); err != nil {
			return nil, nil, err
		}
	}
	switch {
	case config.DBName == "" || strings.Contains(config.DBName, "/"):
		return nil, nil, errors.New("the URL names no database: mysql://user@host/database")
	case u.Hostname() == "" && config.Net == "tcp":
		return nil, nil, errors.New("the URL names no host: mysql://user@host/database, or the option socket")
	}
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	return config, o, t.apply(config)
}

// set sets one option of a URL.
func set(config *mysql.Config, o *Options, t *tlsOptions, key, value string) (err error) {
	switch key {
	case "table_prefix":
		o.TablePrefix = value
	case "max_conns":
		if o.maxConns, err = strconv.Atoi(value); err != nil || o.maxConns < 1 {
			return errors.New("option max_conns is not a number of at least 1, such as 4")
		}
	case "connect_timeout":
		if config.Timeout, err = time.ParseDuration(value); err != nil || config.Timeout <= 0 {
			return errors.New("option connect_timeout is not a time with its unit, such as 5s")
		}
	case "socket":
		if value == "" {
			return errors.New("option socket is empty")
		}
		config.Net, config.Addr = "unix", value
	case "tls":
		t.mode = value
	case "tls_ca":
		t.ca = value
	case "tls_cert":
		t.cert = value
	case "tls_key":
		t.key = value
	case "tls_server_name":
		t.name = value
	default:
		return fmt.Errorf("unknown option %q: there are table_prefix, max_conns, connect_timeout, socket, tls, tls_ca, tls_cert, tls_key and tls_server_name", key)
	}
	return nil
}

// tlsOptions are the TLS options of a URL.
type tlsOptions struct{ mode, ca, cert, key, name string }

func (t *tlsOptions) apply(config *mysql.Config) error {
	files := t.ca != "" || t.cert != "" || t.key != "" || t.name != ""
	switch t.mode {
	case "":
		if !files {
			return nil
		}
	case "true":
	case "false", "preferred", "skip-verify":
		if files && t.mode != "skip-verify" {
			return fmt.Errorf("option tls=%s goes with no other option of TLS", t.mode)
		}
		if t.mode == "preferred" {
			config.TLSConfig = t.mode
		}
		if t.mode != "skip-verify" {
			return nil
		}
	default:
		return errors.New("option tls is none of true, preferred, skip-verify and false")
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.name, InsecureSkipVerify: t.mode == "skip-verify"}
	if t.ca != "" {
		pem, err := os.ReadFile(t.ca)
		if err != nil {
			return fmt.Errorf("option tls_ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("option tls_ca: %s has no certificate", t.ca)
		}
	}
	if t.cert != "" || t.key != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return fmt.Errorf("options tls_cert and tls_key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	config.TLS = c
	return nil
}
