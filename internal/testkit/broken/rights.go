package broken

import (
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// The rights of a broken store's users.
const (
	rightTake  = "+take"   // to take a place
	rightKeep  = "+keep"   // to set when a place ends
	rightLeave = "+remove" // to remove a place
)

// Rights are those that a user needs.
func Rights() []string { return []string{rightTake, rightKeep, rightLeave} }

// A User is a user of a store, who may lack rights.
type User struct {
	s       *Store
	mu      sync.Mutex
	lacking []string
}

// User makes a user with all rights but these.
func (s *Store) User(without ...string) *User { return &User{s: s, lacking: without} }

// Open returns a client of the user's.
func (u *User) Open() *Driver {
	d := New(u.s)
	d.user = u
	return d
}

// Withdraw takes a right from the user.
func (u *User) Withdraw(right string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.lacking = append(u.lacking, right)
}

// checkRights returns the error of a request that lacks one of these rights, or
// nil.
func (d *Driver) checkRights(rights ...string) error {
	if d.user == nil {
		return nil
	}
	d.user.mu.Lock()
	defer d.user.mu.Unlock()
	for _, right := range rights {
		if slices.Contains(d.user.lacking, right) {
			return driver.Errorf(driver.Refused, "the user may not %s", strings.TrimPrefix(right, "+"))
		}
	}
	return nil
}

// findings names the rights that the user lacks.
func (d *Driver) findings() []driver.Finding {
	f := driver.Finding{Topic: "rights", Detail: "all are there"}
	for _, right := range Rights() {
		if err := d.checkRights(right); err != nil && !d.store.hasFlaw("rights-unseen") {
			f.Level, f.Detail, f.Advice = driver.Problem, err.Error(), "give the user "+right
		}
	}
	return []driver.Finding{f, {Topic: "flaw", Detail: "this store is there to be wrong"}}
}
