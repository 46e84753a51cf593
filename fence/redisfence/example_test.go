package redisfence_test

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/redisfence"
)

// Example passes the key, the arguments and the script to EVAL of any client.
func Example() {
	script := redisfence.Script(`return redis.call('SET', KEYS[1], ARGV[1])`)
	token := fence.Token{Value: 41} // hold.Token()

	keys := redisfence.Keys(redisfence.Key("price"), "price")
	args, err := redisfence.Args(token, "9.90")
	if err != nil {
		fmt.Println(err)
		return
	}
	// err = redisfence.Err(client.Eval(ctx, script, keys, args).Err(), token)
	fmt.Println(len(script) > 0, keys, args)
	// The server's answer to an older token:
	fmt.Println(redisfence.Err(errors.New("FENCED 42 "), token))
	// Output:
	// true [price holdfast_fence:{price}] [9.90 41  0]
	// fence: token 41 came after 42
}
