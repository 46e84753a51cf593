// Command stock sells what is in stock from several processes at once. The stock
// is a number in a file, which each process reads, looks at and writes; the lock
// sees to it that it never goes below zero and that every unit is sold once.
//
//	go run ./examples/stock
//	go run ./examples/stock -store redis://localhost:6379
//
// The store has to be one that processes share: it is a SQLite file unless you
// say otherwise.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/anylock"
)

const sellers = 8

// asSeller in the environment makes this program one of the sellers.
const asSeller = "HOLDFAST_EXAMPLE_SELLER"

func main() {
	store := flag.String("store", "", "URL of the store (default a file)")
	units := flag.Int("units", 400, "how many units are in stock")
	flag.Parse()
	var err error
	if file := os.Getenv(asSeller); file != "" {
		err = sell(context.Background(), os.Stdout, *store, file)
	} else {
		err = run(context.Background(), os.Stdout, *store, *units)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run puts units into stock, starts the sellers, and counts.
func run(ctx context.Context, w io.Writer, store string, units int) error {
	dir, err := os.MkdirTemp("", "holdfast-stock-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if store == "" {
		store = "sqlite:" + filepath.Join(dir, "locks.db")
	}
	file := filepath.Join(dir, "stock")
	if err := write(file, units); err != nil {
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
		fmt.Fprintf(w, "process %d sold %d units\n", i+1, n)
	}
	left, err := read(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "sold %d different units of %d, %d are left\n", len(sold), units, left)
	for unit, times := range sold {
		if times > 1 {
			return fmt.Errorf("unit %s was sold %d times", unit, times)
		}
	}
	if left != 0 || len(sold) != units {
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
func sell(ctx context.Context, w io.Writer, store, file string) error {
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
			fmt.Fprintln(w, left)
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
