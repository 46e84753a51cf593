//go:build unix

package cli

import (
	"net"
	neturl "net/url"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast"
)

// transport describes the protection of the connection to a store, as far as its
// URL tells.
type transport struct {
	isRemote bool   // some server is not on this machine
	weakness string // of the connection to it, "" for none
	option   string // the option that chose it, "" for the default
	advice   string
}

const (
	plaintext  = "passwords and names travel in the clear, and whoever is on the way can change every answer"
	unverified = "whoever is on the way can take the server's place: its certificate is not verified"
)

// transportOf reads a URL. It reports nothing about a malformed one: opening the
// store does.
func transportOf(storeURL string) (t transport, remote bool) {
	scheme, rest, _ := strings.Cut(storeURL, "://")
	rest, query, _ := strings.Cut(rest, "?")
	q, err := neturl.ParseQuery(query)
	if err != nil {
		return t, false
	}
	authority, _, _ := strings.Cut(rest[strings.LastIndex(rest, "@")+1:], "/")
	hosts := strings.Split(authority, ",")
	switch scheme {
	case "redis", "redis-sentinel", "redis-cluster", "etcd", "zk", "redlock", "holdfast":
		secure := map[string]string{"redis": "rediss", "redis-sentinel": "rediss-sentinel", "redis-cluster": "rediss-cluster",
			"etcd": "etcds", "zk": "zks", "redlock": "redlocks", "holdfast": "holdfasts"}[scheme]
		t.weakness, t.advice = plaintext, "TLS: "+secure+"://"
	case "rediss", "rediss-sentinel", "rediss-cluster", "etcds", "zks", "redlocks", "holdfasts":
	case "postgres", "postgresql":
		mode := q.Get("sslmode")
		if mode == "" {
			mode = "prefer"
		}
		switch {
		case mode == "disable":
			t.weakness = plaintext
		case mode == "require" && q.Has("sslrootcert"): // libpq takes that for verify-ca
			t.weakness = "any server of that authority is taken for this one"
		case mode == "require":
			t.weakness = unverified
		case mode == "allow" || mode == "prefer":
			t.weakness = "TLS is used where the server offers it, and " + unverified
		case mode == "verify-ca":
			t.weakness = "any server of that authority is taken for this one"
		}
		if t.advice = "sslmode=verify-full, with sslrootcert=FILE for an authority that the system does not know"; q.Has("sslmode") {
			t.option = "sslmode=" + mode
		}
		if q.Has("host") {
			hosts = strings.Split(q.Get("host"), ",")
		}
	case "mysql", "mariadb":
		files := slices.ContainsFunc([]string{"tls_ca", "tls_cert", "tls_key", "tls_server_name"}, q.Has)
		switch mode := q.Get("tls"); {
		case mode == "skip-verify":
			t.weakness = unverified
		case mode == "preferred":
			t.weakness = "TLS is used where the server offers it, and " + unverified
		case mode == "false" || mode == "" && !files:
			t.weakness = plaintext
		}
		if t.advice = "tls=true, or tls_ca=FILE for an authority that the system does not know"; q.Has("tls") {
			t.option = "tls=" + q.Get("tls")
		}
		if q.Has("socket") {
			hosts = nil
		}
	default:
		return t, false // on this machine, or no scheme at all
	}
	t.isRemote = slices.ContainsFunc(hosts, isRemote)
	return t, true
}

// isRemote reports whether a host is, or may be, another machine.
func isRemote(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if host == "" || host == "localhost" || strings.HasPrefix(host, "/") {
		return false
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsLoopback()
}

// finding returns the finding of doctor.
func (t transport) finding() holdfast.Finding {
	f := holdfast.Finding{Topic: "transport", Detail: "the servers are those of this machine"}
	switch {
	case !t.isRemote:
	case t.weakness == "":
		f.Detail = "TLS, with the certificates of the servers verified"
	default:
		f.Level, f.Detail, f.Advice = holdfast.LevelWarning, t.weakness, t.advice
	}
	return f
}

// warning returns the warning that every verb prints about an option that weakens
// the connection to another machine; "" for none.
func (t transport) warning() string {
	if !t.isRemote || t.weakness == "" || t.option == "" {
		return ""
	}
	return t.option + ": " + t.weakness
}
