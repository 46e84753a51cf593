package driver_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// ExampleCharset encodes names for a store whose names are single path elements.
func ExampleCharset() {
	files := driver.Charset{
		Plain: func(b byte) bool { return b != '/' && b > ' ' && b < 0x7f },
		Max:   100,
	}
	for _, name := range []string{"invoice-42", "invoice/42", "100 %", strings.Repeat("x", 101)} {
		fmt.Println(files.Encode(name))
	}
	// Output:
	// invoice-42
	// invoice%2F42
	// 100%20%25
	// ~c675a2e604b0cd1229c036e3ce0c87422980a245e295bbc605a507a2299752db
}

// ExampleNextToken makes tokens that are above the last one and not below the
// clock: they still grow when the store has lost its counter.
func ExampleNextToken() {
	now := driver.Epoch.Add(time.Second)
	first := driver.NextToken(0, 0, now)
	fmt.Println(first, driver.NextToken(first, 0, now), driver.NextToken(0, 0, now.Add(time.Second)))
	// Output: 40000 40001 80000
}

// ExampleClassOf reads the class of an error; the core decides its next step by
// the class alone.
func ExampleClassOf() {
	err := driver.Errorf(driver.Unavailable, "connecting: %w", errors.New("connection refused"))
	fmt.Println(err)
	fmt.Println(driver.ClassOf(err), "/", driver.ClassOf(errors.New("anything else")))
	// Output:
	// store unavailable: connecting: connection refused
	// store unavailable / outcome unknown
}
