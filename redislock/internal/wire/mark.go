package wire

import (
	"strconv"

	"github.com/holdfast-go/holdfast/driver"
)

// doneName begins the keys of the marks that SetMark keeps.
const doneName = "holdfast_done:"

// ReadMark reads the answer of a script that reads a mark.
func ReadMark(r *Reply) (driver.Mark, error) {
	list, err := r.List()
	switch {
	case err != nil || len(list) > 2:
		return driver.Mark{}, Unreadable("a mark")
	case len(list) == 0:
		return driver.Mark{}, nil
	case len(list) == 1:
		return driver.Mark{}, driver.Wrap(driver.Refused, ErrForeign)
	}
	digits, err1 := list[0].Text()
	value, err2 := list[1].Text()
	token, err3 := strconv.ParseUint(digits, 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return driver.Mark{}, Unreadable("a mark")
	}
	return driver.Mark{Token: token, Value: []byte(value)}, nil
}

// ReadMarkSet returns nil if a script has replaced a mark.
func ReadMarkSet(r *Reply) error {
	n, err := r.Int()
	switch {
	case err != nil:
		return driver.Wrap(driver.Refused, ErrForeign)
	case n == 3:
		return driver.ErrStaleMark
	case n != 1:
		return Unreadable("a mark that is set: %d", n)
	}
	return nil
}
