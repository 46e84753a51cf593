package torture

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/safety/checker"
)

// setup is the first line that a client reads. A URL may contain a password, so
// it is not passed as an argument.
type setup struct {
	Store      string        `json:"store"`
	Prefix     string        `json:"prefix"`
	P          int           `json:"p"`
	K          int           `json:"k"`
	Seed       uint64        `json:"seed"`
	TTL        time.Duration `json:"ttl"`
	Goroutines int           `json:"goroutines"`
	Names      []wireName    `json:"names"`
	Tokens     bool          `json:"tokens"`
	Probe      bool          `json:"probe"` // take each name once, and end
	Takes      time.Duration `json:"takes"` // the longest wait of a probe
	Long       int           `json:"long"`  // see Config
}

type wireName struct {
	Name  string `json:"name"`
	Limit int64  `json:"limit"`
	Alone bool   `json:"alone"`
}

// order is any later line that a client reads.
type order struct {
	Do   string `json:"do"`             // "disturb", "heal", "drain", "answer"
	Plan string `json:"plan,omitempty"` // the plan of disturb

	N    int64 `json:"n,omitempty"` // the answered call
	OK   bool  `json:"ok,omitempty"`
	Val  int64 `json:"val,omitempty"`
	Twin int64 `json:"twin,omitempty"`
}

// The messages of a client besides the history.
const (
	hello  checker.What = "hello"  // the client has opened the store
	healed checker.What = "healed" // a fault is over; Value is the number of requests and pushes that met it
	bye    checker.What = "bye"    // the client is done, and has closed
	broke  checker.What = "broke"  // the client cannot work; Text is the reason
)
