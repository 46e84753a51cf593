//go:build unix

package cli

import (
	"net"
	neturl "net/url"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// transport is how the way to a store is protected, as far as its URL says.
type transport struct {
	far    bool   // some server is not on this machine
	weak   string // what is wrong with the way to it, "" for nothing
	chosen string // the option that made it so, "" when nothing was said
	advice string
}

const (
	readable   = "passwords and names travel in the clear, and whoever is on the way can change every answer"
	unverified = "whoever is on the way can take the server's place: its certificate is not verified"
)

// transportOf reads a URL. Of one that cannot be read it says nothing: opening
// it says it.
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
	case "redis", "redis-sentinel", "redis-cluster", "etcd", "zk", "redlock":
		secure := map[string]string{"redis": "rediss", "redis-sentinel": "rediss-sentinel", "redis-cluster": "rediss-cluster",
			"etcd": "etcds", "zk": "zks", "redlock": "redlocks"}[scheme]
		t.weak, t.advice = readable, "TLS: "+secure+"://"
	case "rediss", "rediss-sentinel", "rediss-cluster", "etcds", "zks", "redlocks":
	case "postgres", "postgresql":
		mode := q.Get("sslmode")
		if mode == "" {
			mode = "prefer"
		}
		switch {
		case mode == "disable":
			t.weak = readable
		case mode == "require" && q.Has("sslrootcert"): // libpq takes that for verify-ca
			t.weak = "any server of that authority is taken for this one"
		case mode == "require":
			t.weak = unverified
		case mode == "allow" || mode == "prefer":
			t.weak = "TLS is used where the server offers it, and " + unverified
		case mode == "verify-ca":
			t.weak = "any server of that authority is taken for this one"
		}
		if t.advice = "sslmode=verify-full, with sslrootcert=FILE for an authority that the system does not know"; q.Has("sslmode") {
			t.chosen = "sslmode=" + mode
		}
		if q.Has("host") {
			hosts = strings.Split(q.Get("host"), ",")
		}
	case "mysql", "mariadb":
		files := slices.ContainsFunc([]string{"tls_ca", "tls_cert", "tls_key", "tls_server_name"}, q.Has)
		switch mode := q.Get("tls"); {
		case mode == "skip-verify":
			t.weak = unverified
		case mode == "preferred":
			t.weak = "TLS is used where the server offers it, and " + unverified
		case mode == "false" || mode == "" && !files:
			t.weak = readable
		}
		if t.advice = "tls=true, or tls_ca=FILE for an authority that the system does not know"; q.Has("tls") {
			t.chosen = "tls=" + q.Get("tls")
		}
		if q.Has("socket") {
			hosts = nil
		}
	default:
		return t, false // on this machine, or no scheme at all
	}
	t.far = slices.ContainsFunc(hosts, far)
	return t, true
}

// far says whether a host is another machine, or may be.
func far(hostport string) bool {
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

// finding is what doctor says of it.
func (t transport) finding() driver.Finding {
	f := driver.Finding{Topic: "transport", Detail: "the servers are those of this machine"}
	switch {
	case !t.far:
	case t.weak == "":
		f.Detail = "TLS, with the certificates of the servers verified"
	default:
		f.Level, f.Detail, f.Advice = driver.Warning, t.weak, t.advice
	}
	return f
}

// warning is what every verb says of an option that somebody has chosen and
// that makes the way to another machine weaker; "" for nothing.
func (t transport) warning() string {
	if !t.far || t.weak == "" || t.chosen == "" {
		return ""
	}
	return t.chosen + ": " + t.weak
}
