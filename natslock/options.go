package natslock

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/internal/tlsurl"
	"github.com/nats-io/nats.go"
)

// DefaultBucket is the bucket of the locks if Options name none.
const DefaultBucket = "holdfast"

// Options configure a driver. The zero Options are usable.
type Options struct {
	// Bucket is the key/value bucket of the locks; empty means DefaultBucket.
	// Clients exclude each other only if they use the same bucket. It has the
	// letters, digits, '-' and '_' that NATS allows.
	Bucket string

	// Replicas is the number of servers that keep the bucket, when the driver
	// creates it: 1, 3 or 5. Zero means 1. A bucket that exists stays as it is.
	Replicas int

	// Domain is the JetStream domain of the bucket; empty means that of the server.
	Domain string

	// NATS are further options of the connection, such as credentials and TLS.
	// New ignores them.
	NATS []nats.Option
}

var bucketName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9_-]{1,200}$`) })

// withDefaults returns the options with defaults for what is not set.
func (o Options) withDefaults() (Options, error) {
	if o.Bucket == "" {
		o.Bucket = DefaultBucket
	}
	switch {
	case !bucketName().MatchString(o.Bucket):
		return o, errors.New("bucket: only letters, digits, '-' and '_' are allowed, at most 200")
	case o.Replicas < 0 || o.Replicas > 5:
		return o, fmt.Errorf("replicas: %d is not between 1 and 5", o.Replicas)
	case strings.ContainsAny(o.Domain, ".*> \t\r\n"):
		return o, errors.New("domain: it contains a dot, a space or a wildcard")
	}
	return o, nil
}

func (o *Options) apiPrefix() string {
	if o.Domain == "" {
		return "$JS.API."
	}
	return "$JS." + o.Domain + ".API."
}

// form is the form of a URL, as errors tell it.
const form = "nats://[USER:PASSWORD@]HOST[:PORT][,HOST...][/BUCKET]"

// ParseURL reads the address of a store:
//
//	nats://[USER:PASSWORD@|TOKEN@]HOST[:PORT][,HOST[:PORT]...][/BUCKET][?OPTIONS]
//
// The scheme tls asks for TLS. The options are creds and nkey, files of the user's
// credentials and of a seed; replicas and domain, as in Options; and, with the
// scheme tls, ca, cert, key and server_name. It returns the servers' addresses,
// without credentials, which are in the options. No error contains the URL.
func ParseURL(raw string) (servers []string, o Options, err error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	switch {
	case !ok && (strings.HasPrefix(raw, "nats:") || strings.HasPrefix(raw, "tls:")):
		return nil, o, errors.New("NATS URL: it has no // after its scheme: write " + form)
	case !ok || scheme != "nats" && scheme != "tls":
		return nil, o, errors.New("NATS URL: its scheme is neither nats nor tls: write " + form)
	case strings.Contains(rest, ",nats://") || strings.Contains(rest, ",tls://"):
		return nil, o, errors.New("NATS URL: it has a scheme in a place of a host: write " + form)
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, tail := rest[:end], rest[end:]
	login, hosts := "", authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		login, hosts = authority[:at+1], authority[at+1:]
	}
	// The other hosts are apart, since url.Parse knows of one.
	first, others, several := strings.Cut(hosts, ",")
	u, err := url.Parse(scheme + "://" + login + first + tail)
	if err != nil {
		return nil, o, errors.New("NATS URL: it cannot be read: write a port as a number, and % in a user name, a password or a token as %25, and / as %2F")
	}
	list := []string{first}
	if several {
		list = append(list, strings.Split(others, ",")...)
	}
	for _, host := range list {
		h, err := url.Parse(scheme + "://" + host)
		if err != nil || h.Hostname() == "" || h.Host != host || strings.Count(host, ":") > 1 && host[0] != '[' {
			return nil, o, errors.New("NATS URL: a host is missing or malformed: write " + form + ", and an IPv6 address in brackets")
		}
		if port := h.Port(); port != "" {
			if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
				return nil, o, errors.New("NATS URL: a host's port is not a number from 1 to 65535")
			}
		}
		servers = append(servers, scheme+"://"+host)
	}
	if u.Fragment != "" {
		return nil, o, errors.New("NATS URL: it has a fragment; write # as %23")
	}
	o.Bucket = strings.TrimPrefix(u.Path, "/")
	if strings.Contains(o.Bucket, "/") {
		return nil, o, errors.New("NATS URL: its path is the name of one bucket: write " + form)
	}
	if err := o.login(u); err != nil {
		return nil, o, fmt.Errorf("NATS URL: %w", err)
	}
	o, err = o.withDefaults()
	if err != nil {
		return nil, o, fmt.Errorf("NATS URL: %w", err)
	}
	return servers, o, nil
}

// login reads credentials and options of a URL.
func (o *Options) login(u *url.URL) error {
	if user := u.User; user != nil {
		if password, has := user.Password(); has {
			o.NATS = append(o.NATS, nats.UserInfo(user.Username(), password))
		} else {
			o.NATS = append(o.NATS, nats.Token(user.Username()))
		}
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("the options cannot be read")
	}
	for name, values := range q {
		if len(values) != 1 {
			return fmt.Errorf("option %s is given %d times", name, len(values))
		}
		switch name {
		case "creds":
			if err := readable(name, values[0]); err != nil {
				return err
			}
			o.NATS = append(o.NATS, nats.UserCredentials(values[0]))
		case "nkey":
			option, err := nats.NkeyOptionFromSeed(values[0])
			if err != nil {
				return fmt.Errorf("option nkey: %s has no readable seed", values[0])
			}
			o.NATS = append(o.NATS, option)
		case "replicas":
			if o.Replicas, err = strconv.Atoi(values[0]); err != nil || o.Replicas < 1 {
				return errors.New("option replicas is not a number from 1 to 5")
			}
		case "domain":
			o.Domain = values[0]
		case "ca", "cert", "key", "server_name":
		default:
			return fmt.Errorf("unknown option %q; known are creds, nkey, replicas, domain, %s", name, strings.Join(tlsurl.Names(), ", "))
		}
	}
	config, err := tlsurl.Parse(q, "tls", u.Scheme == "tls")
	if config != nil {
		o.NATS = append(o.NATS, nats.Secure(config))
	}
	return err
}

func readable(name, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("option %s: %w", name, err)
	}
	return f.Close()
}
