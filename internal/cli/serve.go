//go:build unix

package cli

import (
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/lockserver"
	"github.com/holdfast-go/holdfast/lockserver/lockauth"
)

// defaultListen is the address of a server that is given none.
const defaultListen = "127.0.0.1:7420"

// serveCommand is one invocation of serve.
type serveCommand struct {
	*app
	listen      []string
	unixPath    string
	admin       string
	tlsCert     string
	tlsKey      string
	clientCA    string
	authFile    string
	auditFile   string
	hosts       []string
	realm       string
	insecure    bool
	dev         bool
	drain       time.Duration
	connections int
	limits      lockserver.Limits

	log   *slog.Logger
	certs *certificates // nil without TLS
	rules *lockauth.File
	audit *auditLog // nil without --audit

	metrics *lockserver.Metrics

	auditTo *os.File // until audit has it
}

func (a *app) serve() *cobra.Command {
	s := &serveCommand{app: a}
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Serve locks by HTTP to programs of every language",
		Long:  serveLong, Example: serveExample,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("serve takes no arguments, and has the command token")
			}
			if err := s.checkFlags(cmd); err != nil {
				return err
			}
			return s.run()
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&s.listen, "listen", nil, "listen on `HOST:PORT`; may be repeated (default: "+defaultListen+")")
	f.StringVar(&s.unixPath, "unix", "", "listen on a Unix socket at `PATH`, for this user and root")
	f.StringVar(&s.admin, "admin-listen", "", "answer probes and /metrics on `HOST:PORT`, without TLS and --auth")
	f.StringVar(&s.tlsCert, "tls-cert", "", "`FILE` of the server's certificate and those that sign it, in PEM")
	f.StringVar(&s.tlsKey, "tls-key", "", "`FILE` of the certificate's private key, in PEM")
	f.StringVar(&s.clientCA, "client-ca", "", "`FILE` of the authorities of client certificates, in PEM; needs --auth")
	f.StringVar(&s.authFile, "auth", "", "`FILE` of the principals and their rights, in JSON")
	f.StringVar(&s.auditFile, "audit", "", "append what clients do to `FILE`, in JSON")
	f.StringArrayVar(&s.hosts, "host", nil, "answer requests for the host `NAME`, too; may be repeated")
	f.StringVar(&s.realm, "realm", "", "keep the ids of clients apart from those of servers with another `NAME`")
	f.BoolVar(&s.insecure, "insecure", false, "listen for other machines without TLS or without --auth")
	f.BoolVar(&s.dev, "dev", false, "allow a memory: store, whose locks end with the server")
	f.DurationVar(&s.drain, "drain", 10*time.Second, "after SIGTERM, wait for clients to leave for `DURATION`")
	f.IntVar(&s.connections, "max-connections", 20_000, "`NUMBER` of open connections")
	f.IntVar(&s.limits.Holds, "max-holds", 100_000, "`NUMBER` of holds of one principal, waits included")
	f.IntVar(&s.limits.Waiters, "max-waiters", 10_000, "`NUMBER` of waits of one principal")
	f.IntVar(&s.limits.Polls, "max-polls", 2_000, "`NUMBER` of requests of one principal that wait at once")
	f.DurationVar(&s.limits.MinTTL, "min-ttl", 0, "least TTL of a hold (default: 1s, or the store's minimum)")
	f.DurationVar(&s.limits.MaxTTL, "max-ttl", 0, "greatest TTL of a hold (default: 10m, or the store's maximum)")
	for _, name := range []string{"min-ttl", "max-ttl"} {
		f.Lookup(name).DefValue = "0s" // so that help shows none
	}
	cmd.AddCommand(a.serveToken())
	return cmd
}

// checkFlags makes the checks that need no store and no file.
func (s *serveCommand) checkFlags(cmd *cobra.Command) error {
	flags := cmd.Flags()
	for name, value := range map[string]string{
		"unix": s.unixPath, "admin-listen": s.admin, "tls-cert": s.tlsCert, "tls-key": s.tlsKey,
		"client-ca": s.clientCA, "auth": s.authFile, "audit": s.auditFile,
	} {
		if flags.Changed(name) && value == "" {
			return usage("--%s is empty", name) // an unset variable
		}
	}
	switch {
	case slices.Contains(s.listen, ""):
		return usage("--listen is empty")
	case slices.Contains(s.hosts, ""):
		return usage("--host is empty")
	case (s.tlsCert == "") != (s.tlsKey == ""):
		return usage("--tls-cert and --tls-key are given together")
	case s.clientCA != "" && s.tlsCert == "":
		return usage("--client-ca needs --tls-cert and --tls-key")
	case s.clientCA != "" && s.authFile == "":
		return usage("--client-ca needs --auth, which says what each certificate may do")
	case s.drain < 0:
		return usage("--drain %v is negative", s.drain)
	case s.connections < 1:
		return usage("--max-connections %d is not positive", s.connections)
	}
	for _, limit := range []struct {
		name  string
		value int
	}{{"holds", s.limits.Holds}, {"waiters", s.limits.Waiters}, {"polls", s.limits.Polls}} {
		if limit.value < 1 {
			return usage("--max-%s %d is not positive", limit.name, limit.value)
		}
	}
	for name, value := range map[string]time.Duration{"min-ttl": s.limits.MinTTL, "max-ttl": s.limits.MaxTTL} {
		if flags.Changed(name) && value <= 0 {
			return usage("--%s %v is not positive", name, value)
		}
	}
	return nil
}

// checkStore refuses a store that grants again, after a restart, the locks that
// clients still rely on.
func (s *serveCommand) checkStore(l location) error {
	if scheme, _, _ := strings.Cut(l.url, ":"); strings.EqualFold(scheme, "memory") && !s.dev {
		return usage("a memory: store loses all locks with the server, which would then grant them again: --dev allows it")
	}
	return nil
}

// checkAddress refuses an address that other machines reach without TLS and rights.
func (s *serveCommand) checkAddress(flag string, addr net.Addr) error {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() {
		return nil
	}
	var missing []string
	if s.tlsCert == "" {
		missing = append(missing, "--tls-cert", "--tls-key")
	}
	if s.authFile == "" {
		missing = append(missing, "--auth")
	}
	if len(missing) == 0 {
		return nil
	}
	if s.insecure {
		s.log.Warn("other machines can take locks here without "+strings.Join(missing, ", "), "address", addr.String())
		return nil
	}
	return usage("%s %v: other machines reach this address; give %s, or insist with --insecure", flag, addr, strings.Join(missing, ", "))
}
