package stock

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// BenchmarkSalesInDatabases is BenchmarkSales for databases that flush each commit,
// with 64 buyers and with 256.
//
//	go test ./stock -run '^$' -bench SalesInDatabases -benchtime 1x -sales.rounds 10 -sales.window 300ms
func BenchmarkSalesInDatabases(b *testing.B) {
	pg, maria := servers.Postgres(b, servers.PostgresOptions{}), servers.MariaDB(b, servers.MariaDBOptions{})
	var ways []*way
	for _, at := range []struct {
		name, driverName, address string
		pid                       int
	}{
		{"postgres", "pgx", pg.URL("postgres", "sslmode=disable"), pg.PID()},
		{"mariadb", "mysql", mariaDBAt(maria, "locks"), maria.PID()},
	} {
		st, err := NewSQL(b.Context(), nil, pool(b, at.driverName, at.address))
		must(b, err)
		b.Cleanup(func() { st.Close() })
		for _, shards := range []int{1, 2, 4} {
			sku := fmt.Sprint("phone", shards)
			must(b, st.Set(b.Context(), sku, MaxUnits/2, shards))
			for _, buyers := range []int{64, 256} {
				ways = append(ways, &way{
					name: fmt.Sprintf("%s, %d shards, %d buyers", at.name, shards, buyers), shards: shards, buyers: buyers,
					busy: func(testing.TB) []float64 { return []float64{processorOf(at.pid)} },
					sell: func(ctx context.Context, buyer, n int) error {
						_, err := st.Sell(ctx, sku, 1, "order/"+strconv.Itoa(buyers)+"/"+strconv.Itoa(buyer)+"/"+strconv.Itoa(n))
						return err
					},
				})
			}
		}
	}
	measure(b, ways)
}

// processorOf returns the processor seconds of a process and its children, those
// that have ended included.
func processorOf(pid int) (sum float64) {
	const ticks = 100 // in a second
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state parent …; the times are fields 14 and 15, and those of
		// children that have ended 16 and 17.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		times := fields[11:13]
		switch strconv.Itoa(pid) {
		case filepath.Base(filepath.Dir(file)):
			times = fields[11:15]
		case fields[1]:
		default:
			continue
		}
		for _, text := range times {
			n, _ := strconv.ParseFloat(text, 64)
			sum += n / ticks
		}
	}
	return sum
}
