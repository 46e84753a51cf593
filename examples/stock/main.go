// Command stock sells what is in stock from several processes at once. The stock
// is a number in a file, which each process reads, looks at and writes; the lock
// sees to it that it never goes below zero and that every unit is sold once.
//
//	go run ./examples/stock
//	go run ./examples/stock -store redis://localhost:6379
//
// The store has to be one that processes share, such as a SQLite file.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/anylock"
)

const sellers, units = 8, 200

// asSeller in the environment makes this program one of the sellers.
const asSeller = "HOLDFAST_EXAMPLE_SELLER"

func main() {
	store := flag.String("store", "sqlite:locks.db", "URL of the store")
	flag.Parse()
	part := run
	if os.Getenv(asSeller) != "" {
		part = sell
	}
	if err := part(context.Background(), *store); err != nil {
		log.Fatal(err)
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
	if err := write(file, units); err != nil {
		return err
	}

	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends those that are left after an error
	var running []*seller
	for range sellers {
		s, err := start(ctx, self, store, file)
		if err != nil {
			return err
		}
		running = append(running, s)
	}
	// All of them are there: now they sell.
	var selling sync.WaitGroup
	for _, s := range running {
		selling.Go(s.sells)
	}
	selling.Wait()

	sold := map[string]int{} // how often each unit was sold
	for i, s := range running {
		if s.err != nil {
			return s.err
		}
		for _, unit := range s.sold {
			sold[unit]++
		}
		fmt.Printf("process %d sold %d units\n", i+1, len(s.sold))
	}
	left, err := read(file)
	if err != nil {
		return err
	}
	fmt.Printf("sold %d different units of %d, %d are left\n", len(sold), units, left)
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

// seller is a process that sells.
type seller struct {
	cmd  *exec.Cmd
	gate io.Closer // closed when it is to begin
	out  *bufio.Scanner
	sold []string
	err  error
}

// start starts a seller, and waits until it is ready.
func start(ctx context.Context, self, store, file string) (*seller, error) {
	cmd := exec.CommandContext(ctx, self, "-store", store)
	cmd.Env = append(os.Environ(), asSeller+"="+file)
	cmd.Stderr = os.Stderr
	gate, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &seller{cmd: cmd, gate: gate, out: bufio.NewScanner(out)}
	if !s.out.Scan() {
		return nil, errors.Join(errors.New("a seller was not ready"), cmd.Wait())
	}
	return s, nil
}

// sells lets the seller begin, and collects the units it sells.
func (s *seller) sells() {
	_ = s.gate.Close()
	for s.out.Scan() {
		s.sold = append(s.sold, s.out.Text())
	}
	s.err = s.cmd.Wait()
}

// sell sells one unit at a time until there is none, as each process does, and
// writes the number of each unit that it sold.
func sell(ctx context.Context, store string) error {
	file := os.Getenv(asSeller)
	locks, err := anylock.Open(ctx, store)
	if err != nil {
		return err
	}
	defer locks.Close()
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil { // until the others are, too
		return err
	}
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
			time.Sleep(time.Millisecond) // the customer pays
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
