// Package storelayout checks, when a store without a version of its own is opened, that
// no later version of Holdfast keeps this one away from it.
//
// Redis, etcd, NATS and ZooKeeper have the version of a layout in each record, which
// every request checks. A store as a whole has none until a version comes whose records
// must not stand beside those of this one. That version writes a record of the whole
// store, before any other: a decimal number, at a key that each package names. This one
// only reads it.
package storelayout

import (
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// known is the layout of this version.
const known = 1

// Check returns an error of class Refused if the text at key does not name a layout that
// this version knows.
func Check(key, text string) error {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	switch {
	case err != nil || n < 1:
		return driver.Errorf(driver.Refused, "%s names no layout: %.40q", key, text)
	case n > known:
		return driver.Errorf(driver.Refused, "a later version of Holdfast uses the store: its layout in %s is %d, this version knows %d; upgrade this program first", key, n, known)
	}
	return nil
}
