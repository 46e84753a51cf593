package drivertest

import "github.com/holdfast-go/holdfast/driver"

// Rights describes the rights of a store's users, for the cases about a user who
// lacks a right that the lock needs.
type Rights struct {
	// Needed names the rights that the store's page lists, as an operator would
	// write them: "+pexpire", "DELETE". A user who lacks one of them may be served
	// in part, or refused. Check names the missing right.
	Needed []string

	// User makes a user of the store with all rights of Needed except those
	// given. Each call makes another one.
	User func(t T, without ...string) User

	// Unexpiring lists the store's records of locks that never expire and that no
	// later request of their queue would find: a key without an expiry, a row that
	// no sweep finds. Nil if the store cannot tell.
	Unexpiring func(t T) []string

	// Majority says that a release is complete once most servers have carried it
	// out. A server that refuses it keeps its record until the TTL ends.
	Majority bool
}

// User is a user of a store.
type User struct {
	// Open returns a new client as this user, or why it could not be opened.
	// The suite closes it.
	Open func(t T) (driver.Driver, error)

	// Revoke takes a right of [Rights.Needed] from the user, whose clients are
	// open. Nil for a store that checks rights only when a client opens.
	Revoke func(t T, right string)
}
