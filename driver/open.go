package driver

import "time"

// OpenLimit bounds the wait for a store's first answer when it is opened. Opening
// with a context without a deadline returns an error of class [Unavailable] by
// then, with the store's address in it, unless the user asked for another time.
// The limit does not count the preparation of the store after its first answer,
// such as the creation of tables.
const OpenLimit = 5 * time.Second
