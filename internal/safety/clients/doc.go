// Package clients lets clients of lock servers in several languages, and Go programs
// straight at the store, count under one lock. Its tests are a lane of their own:
// make clients.
package clients
