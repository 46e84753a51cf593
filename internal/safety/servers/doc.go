// Package servers tortures each store on real servers of its own. It kills and
// stops the servers, fails them over, deletes their data, and cuts them off
// from each other and from the clients. It has tests only.
//
// Each store has scenarios. In a safe scenario the store promises to survive
// the faults, and nothing may go wrong. In an exposed scenario the faults go
// beyond that: overlaps are counted, and so are the writes that fencing tokens
// stopped.
//
// A build runs the scenarios for seconds. A soak is a command:
//
//	go test ./internal/safety/servers -run 'TestSafe/redis$' -v -timeout 0 -servers.for 8m -servers.seed 7
//
// With -servers.history FOLDER it keeps the history of every call.
package servers
