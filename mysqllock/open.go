package mysqllock

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
)

// Options are settings of a [Driver]. The zero Options are good. Clients that
// are to exclude one another need equal TablePrefix.
type Options struct {
	// TablePrefix begins the names of the tables: lower-case letters, digits
	// and underscores, at most 32 of them. Empty: holdfast_.
	TablePrefix string

	maxConns int         // of a pool of ours; 0: one for each processor, at least 4
	clock    string      // for tests: the expression of the store's clock
	later    *[][]string // for tests: sqlline.Dialect.Later
}

var prefixForm = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,31}$`)

func (o *Options) check() error {
	if o.TablePrefix != "" && !prefixForm.MatchString(o.TablePrefix) {
		return fmt.Errorf("the prefix of tables is %q; it has to be of lower-case letters, digits and underscores, at most 32, and begin with no digit", o.TablePrefix)
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
// open when the driver is closed. A nil o is the zero Options. It sends nothing:
// the tables are looked at, and made if there are none, by the first request.
//
// The pool may be small: requests take a connection for the time of one short
// transaction. A client that waits for locks keeps one more of its connections,
// for its bell, unless the pool has one alone.
//
// With interpolateParams=true and multiStatements=true in the data source name
// several statements are one round trip; [Open] has that. Without, each
// statement is one or two of its own, and all else is the same.
func New(db *sql.DB, o *Options) (*Driver, error) {
	if o == nil {
		o = new(Options)
	}
	if db == nil {
		return nil, driver.Errorf(driver.Refused, "the pool is nil")
	}
	if _, ok := db.Driver().(*mysql.MySQLDriver); !ok {
		return nil, driver.Errorf(driver.Refused, "the pool is one of %T, not of github.com/go-sql-driver/mysql", db.Driver())
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
//	connect_timeout=5s    for one attempt to connect; 5 s if not given
//	socket=PATH           of a Unix socket, instead of host and port
//	tls=true              TLS, with the server's certificate verified. Also: preferred (TLS if the
//	                      server has it, unverified), skip-verify, and false, as if not given
//	tls_ca=FILE           certificates to trust instead of the system's; implies tls=true
//	tls_cert=FILE, tls_key=FILE   the client's certificate; imply tls=true
//	tls_server_name=NAME  the name in the server's certificate, if not the host
//
// Other options are refused. Open makes one connection, and makes the tables if
// there are none.
func Open(ctx context.Context, rawURL string) (*Driver, error) {
	config, o, err := parseURL(rawURL)
	if err != nil {
		return nil, driver.Wrap(driver.Refused, err)
	}
	return open(ctx, config, o)
}

func open(ctx context.Context, config *mysql.Config, o *Options) (*Driver, error) {
	if err := driver.Before(ctx); err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, driver.Wrap(driver.Refused, err)
	}
	conns := &opener{Connector: connector}
	db, bells := sql.OpenDB(conns), sql.OpenDB(connector)
	db.SetMaxOpenConns(o.conns())
	db.SetMaxIdleConns(o.conns())
	bells.SetMaxIdleConns(0)
	d := newDriver(db, bells, true, o)
	conns.prepares(d.r.Lines)
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

// quiet drops what the client library would print of connections that end: the
// errors of requests say it.
type quiet struct{}

// Print implements mysql.Logger.
func (quiet) Print(...any) {}

func parseURL(rawURL string) (*mysql.Config, *Options, error) {
	if scheme, _, _ := strings.Cut(rawURL, "://"); scheme != "mysql" && scheme != "mariadb" {
		return nil, nil, errors.New("a URL of this store begins with mysql:// or mariadb://")
	}
	// Parts of a URL that cannot be read may be a password: say nothing of it.
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
	config.Logger = quiet{}
	config.Params = map[string]string{
		"innodb_lock_wait_timeout": strconv.Itoa(rowPatience),
		"lock_wait_timeout":        strconv.Itoa(tablePatience),
		"autocommit":               "1",
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
			return errors.New("option max_conns is a number, at least 1")
		}
	case "connect_timeout":
		if config.Timeout, err = time.ParseDuration(value); err != nil || config.Timeout <= 0 {
			return errors.New("option connect_timeout is a time with its unit: 5s")
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

// tlsOptions are what a URL says of TLS.
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
		return errors.New("option tls is one of true, preferred, skip-verify and false")
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
