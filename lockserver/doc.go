// Package lockserver lets programs of any language hold locks, by HTTP. A Server is
// an http.Handler over a client: it takes places in the client's queues on behalf of
// its own clients, which wait by long polls, renew their holds themselves, and are
// answered with fencing tokens and with the time for which they may believe that
// they hold.
//
// A Server has no state that must survive it. A hold belongs to a named owner at the
// store, the hash of an id that the client chose, so any server over the same store
// finds it again. A server extends a lease only when the client asks for it: the
// lock of a client that is dead ends with its TTL.
//
// docs/serve.md has the requests, the codes and the promises; GET /openapi.json has
// them for machines. Listeners, TLS, tokens and files belong to the program; Options
// has the seams for them.
package lockserver
