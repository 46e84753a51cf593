// Package servers tortures each store on real servers of its own, which it
// kills, stops, fails over and robs of their data, and cuts off from each other
// and from the clients. It has tests only.
//
// Each store has scenarios. In a safe one the faults are what the store promises
// to survive, and nothing may go wrong. In an exposed one they go beyond that:
// overlaps are counted, and what the fencing tokens stopped.
//
// A build runs them for seconds. A soak is a command:
//
//	go test ./check/internal/servers -run 'TestSafe/redis$' -v -timeout 0 -servers.for 8m -servers.seed 7
//
// With -servers.history FOLDER it keeps the history of every call.
package servers
