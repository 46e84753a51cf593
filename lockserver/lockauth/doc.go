// Package lockauth identifies the clients of a lockserver by bearer tokens, by
// certificates and by the credentials of Unix peers, and gives them rights for
// prefixes of names. The rights stand in a file, which is read again while the
// server runs:
//
//	{"principals": [{
//	  "name": "billing",
//	  "token_sha256": ["9f2c…"],
//	  "cert": ["spiffe://corp/billing"],
//	  "rights": [{"prefix": "invoice/", "may": ["read", "lock"], "waiters": 500, "max_hold_ms": 3600000}]
//	}]}
//
// The file has the hashes of the tokens and no token; NewToken makes one. A prefix
// is compared with the bytes of a name, so it should end with the separator of your
// names: "inv" covers "invoices/" too.
package lockauth
