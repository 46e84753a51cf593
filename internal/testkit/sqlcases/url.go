package sqlcases

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// Password is the password in the URLs of such a test. No error may repeat it.
const Password = "s3cret"

// RefusesURLs calls open with URLs that have the [Password] and cannot be used,
// each with a part of its error. It checks that they are refused before
// anything is sent, apart from those of 127.0.0.1:1, where nothing listens.
func RefusesURLs(t *testing.T, open func(url string) (driver.Driver, error), urls map[string]string) {
	t.Helper()
	for url, says := range urls {
		d, err := open(url)
		if err == nil {
			_ = d.Close()
			t.Errorf("%s: no error", url)
			continue
		}
		if !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), Password) {
			t.Errorf("%s: %v", url, err)
		}
		// An error of the URL has no class: a class would mean that a request
		// was sent.
		_, classed := errors.AsType[*driver.Error](err)
		if asked := strings.Contains(url, "127.0.0.1:1"); classed != asked || asked && driver.ClassOf(err) != driver.Unavailable {
			t.Errorf("%s: class %v of %v", url, driver.ClassOf(err), err)
		}
	}
}
