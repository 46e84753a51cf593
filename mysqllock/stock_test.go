package mysqllock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// asSeller is the environment variable that makes this process one of the
// sellers.
const asSeller = "HOLDFAST_TEST_SELLER"

const (
	sellers = 8
	buyers  = 50 // of each seller
)

// TestStockSoldExactly runs the stock scenario: 8 processes with 50 goroutines
// each take one piece out of a stock of 400, in a table beside those of the
// lock. A later statement writes back the number that was read, which goes
// wrong without the lock.
func TestStockSoldExactly(t *testing.T) {
	s := servers.SharedMariaDB(t)
	s.Exec(t, "CREATE TABLE stock (id int PRIMARY KEY, pieces bigint NOT NULL, token bigint NOT NULL)")
	s.Exec(t, fmt.Sprintf("INSERT INTO stock VALUES (1, %d, 0)", sellers*buyers))
	url := s.URL("holdfast", own())
	var running []*exec.Cmd
	for range sellers {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asSeller+"="+url)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	for _, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Errorf("a seller: %v", err)
		}
	}
	if n := s.Value(t, "SELECT pieces FROM stock"); n != 0 {
		t.Errorf("%d pieces are left of %d", n, sellers*buyers)
	}
}

// failing ends a process that runs no test.
type failing struct{ drivertest.T }

func (failing) Helper()                           {}
func (failing) Cleanup(func())                    {}
func (failing) Fatalf(format string, args ...any) { fmt.Printf(format+"\n", args...); os.Exit(1) }

// sell runs one seller process, on the pool that it has for its work.
func sell(url string) error {
	ctx := context.Background()
	db := poolOf(failing{}, url, func(c *mysql.Config) { c.InterpolateParams, c.MultiStatements = true, true })
	defer db.Close()
	d, err := New(db, &Options{TablePrefix: prefixOf(url)})
	if err != nil {
		return err
	}
	locks, err := holdfast.New(d)
	if err != nil {
		return err
	}
	errs := make([]error, buyers)
	var wg sync.WaitGroup
	for i := range buyers {
		wg.Go(func() {
			errs[i] = locks.Do(ctx, "stock", func(ctx context.Context) error {
				var pieces, last int64
				if err := db.QueryRowContext(ctx, "SELECT pieces, token FROM stock").Scan(&pieces, &last); err != nil {
					return err
				}
				token := int64(holdfast.Token(ctx, "stock"))
				if pieces < 1 || token <= last {
					return fmt.Errorf("%d pieces, token %d after %d", pieces, token, last)
				}
				_, err := db.ExecContext(ctx, "UPDATE stock SET pieces = ?, token = ? WHERE id = 1", pieces-1, token)
				return err
			})
		})
	}
	wg.Wait()
	return errors.Join(append(errs, locks.Close())...)
}
