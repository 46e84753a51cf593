// Command stock sells what is in stock from several processes at once. The stock
// is a number in a file, which each process reads, looks at and writes; the lock
// sees to it that it never goes below zero and that every unit is sold once.
//
//	go run ./examples/stock
//	go run ./examples/stock -store redis://localhost:6379
//
// The store has to be one that processes share: it is the SQLite file of the
// holdfast command unless you say otherwise.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/examples/internal/program"
)

const sellers = 8

// asSeller in the environment makes this program one of the sellers.
const asSeller = "HOLDFAST_EXAMPLE_SELLER"

var units = flag.Int("units", 200, "how many units are in stock")

func main() {
	if os.Getenv(asSeller) != "" {
		program.Main(sell)
	} else {
		program.Main(run)
	}
}

// run puts units into stock, starts the sellers, and counts.
func run(ctx context.Context, store string) error {
	dir, err := os.MkdirTemp("", "holdfast-stock-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "stock")
	if err := write(file, *units); err != nil {
		return err
	}

	self, err := os.Executable()
	if err != nil {
		return err
	}
	var running []*exec.Cmd
	var said [sellers]bytes.Buffer
	for i := range sellers {
		cmd := exec.CommandContext(ctx, self, "-store", store)
		cmd.Env = append(os.Environ(), asSeller+"="+file)
		cmd.Stdout, cmd.Stderr = &said[i], os.Stderr
		if err := cmd.Start(); err != nil {
			return errors.Join(err, wait(running))
		}
		running = append(running, cmd)
	}
	if err := wait(running); err != nil {
		return err
	}

	sold := map[string]int{} // how often each unit was sold
	for i := range said {
		n := 0
		for unit := bufio.NewScanner(&said[i]); unit.Scan(); n++ {
			sold[unit.Text()]++
		}
		fmt.Printf("process %d sold %d units\n", i+1, n)
	}
	left, err := read(file)
	if err != nil {
		return err
	}
	fmt.Printf("sold %d different units of %d, %d are left\n", len(sold), *units, left)
	for unit, times := range sold {
		if times > 1 {
			return fmt.Errorf("unit %s was sold %d times", unit, times)
		}
	}
	if left != 0 || len(sold) != *units {
		return errors.New("the numbers do not add up")
	}
	return nil
}

func wait(running []*exec.Cmd) (err error) {
	for _, cmd := range running {
		err = errors.Join(err, cmd.Wait())
	}
	return err
}

// sell is what each process does: it sells a unit at a time until there is
// none, and writes the number of each that it sold.
func sell(ctx context.Context, store string) error {
	file := os.Getenv(asSeller)
	locks, err := anylock.Open(ctx, store)
	if err != nil {
		return err
	}
	defer locks.Close()
	for empty := false; !empty; {
		err := locks.Do(ctx, "examples/stock", func(context.Context) error {
			left, err := read(file)
			if err != nil {
				return err
			}
			if empty = left == 0; empty {
				return nil
			}
			if left < 0 {
				return fmt.Errorf("the stock is %d: somebody sold what was not there", left)
			}
			fmt.Println(left)
			return write(file, left-1)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func read(file string) (int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

func write(file string, n int) error { return os.WriteFile(file, fmt.Appendln(nil, n), 0o600) }
