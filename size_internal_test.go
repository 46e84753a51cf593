package holdfast

import (
	"testing"
	"unsafe"
)

// TestUncontendedFitsItsSizeClass bounds what every held lock costs in memory. With
// the runtime's header of 8 bytes, one byte more takes the next size class, 640
// bytes.
func TestUncontendedFitsItsSizeClass(t *testing.T) {
	if size := unsafe.Sizeof(uncontended{}); size > 568 {
		t.Errorf("queue, hold and ticket take %d bytes, want at most 568", size)
	}
}
