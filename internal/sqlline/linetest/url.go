package linetest

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// Password is that of the URLs which a test of them has. No error may repeat it.
const Password = "s3cret"

// Refused has open be given URLs, with the [Password], that cannot be used, each
// with a part of what is said of it. They are refused before anything is sent,
// but for those of 127.0.0.1:1, where nobody answers.
func Refused(t *testing.T, open func(url string) (driver.Driver, error), urls map[string]string) {
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
		want := driver.Refused
		if strings.Contains(url, "127.0.0.1:1") {
			want = driver.Unavailable
		}
		if driver.ClassOf(err) != want {
			t.Errorf("%s: class %v of %v", url, driver.ClassOf(err), err)
		}
	}
}
