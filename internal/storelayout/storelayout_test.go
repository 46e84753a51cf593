package storelayout_test

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storelayout"
)

// TestCheck checks which texts name a layout that this version knows.
func TestCheck(t *testing.T) {
	for text, says := range map[string]string{
		"1":       "",
		" 1\n":    "",
		"2":       `layout in KEY is 2, this version knows 1; upgrade this program first`,
		"":        `names no layout: ""`,
		"0":       `names no layout: "0"`,
		"-1":      "names no layout",
		"one":     "names no layout",
		"1 and 2": "names no layout",
	} {
		err := storelayout.Check("KEY", text)
		if says == "" && err != nil || says != "" && (driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), says)) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}
