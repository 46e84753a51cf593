//go:build unix

package cli

// The help of serve.
const (
	serveLong = `Serve answers HTTP requests for locks, so that programs of every language take, renew
and release them: see docs/serve.md for the requests. It keeps no state of its own:
the locks are those of the store, in one queue with the locks of Go programs, and a
lock outlives the server where the store has owners.

Addresses. It listens on --listen (127.0.0.1:7420, unless --unix or systemd give a
socket), which may be repeated. An address that other machines reach needs TLS
(--tls-cert and --tls-key) and --auth; without them serve refuses to start, unless
--insecure insists. --unix listens on a socket that only its own user and root can
open. A socket file that another process answers is left alone. Sockets that systemd
passes are used instead of the default address. --admin-listen answers /healthz,
/readyz and /metrics without TLS and without --auth.

Clients. Without --auth, everybody who reaches the server may read and take all
locks, and break none. --auth names a file of principals with their tokens,
certificates and rights:

  {"principals": [{
    "name": "billing", "token_sha256": ["HASH"], "cert": ["spiffe://corp/billing"],
    "rights": [{"prefix": "invoice/", "may": ["read", "lock"],
                "waiters": 500, "max_hold_ms": 3600000}]}]}

May is read, lock, break and, with the prefix "", metrics. The file has the hashes
of tokens; "holdfast serve token NAME" makes a token. A file that others may write
is refused. A request is identified
by its header "Authorization: Bearer TOKEN", or else by its client certificate
(--client-ca), or else by the user of the process at the other end of a Unix socket:
the principal uid:N. With --auth, such a user needs an entry of that name in the file;
the server's own user needs none, and may break locks.

A request has to name this server in its Host header, by an IP address, as localhost
on this machine, by a name of the server's certificate, or by a name that --host
gives.

Changes. The files of --auth, --tls-cert, --tls-key and --client-ca are read again
when they change, and on SIGHUP, which also opens --audit anew. A file that cannot be
read leaves the one before in force, and the log says so.

The end. On SIGTERM or SIGINT serve takes no new locks, answers /readyz with 503, and
waits for --drain until its clients have gone on to another server or released their
locks. Then it ends without releasing what is left: the locks that a client holds
live out their leases, and the client finds them at the next server. A second signal
ends it at once.

The log goes to standard error, with --json as JSON. --audit FILE has a JSON object a
line for each grant, resume, release, loss, break and refusal. If it cannot be
written, objects are dropped and counted, and breaks are refused.

Exit status: 0 after SIGTERM or SIGINT, 64 for a command line or a file that is wrong,
69 when the store cannot be reached or an address is in use, 128+n when a second
signal ended it.`

	serveExample = `  # For the processes of this machine
  holdfast serve --store redis://localhost
  id=$(cat /proc/sys/kernel/random/uuid)
  curl -sS http://127.0.0.1:7420/v1/acquire -d name=nightly -d id=$id -d ttl_ms=30000

  # For other machines
  holdfast serve --store-file /etc/holdfast/store --listen :7420 \
    --auth /etc/holdfast/auth.json --audit /var/log/holdfast/audit.json \
    --tls-cert /etc/holdfast/tls.crt --tls-key /etc/holdfast/tls.key

  # For this user's processes
  holdfast serve --unix /run/user/1000/holdfast.sock`
)
