module github.com/holdfast-go/holdfast/tests

go 1.26.0

require (
	github.com/go-sql-driver/mysql v1.10.1
	github.com/holdfast-go/holdfast v0.0.0
	github.com/holdfast-go/holdfast/internal/safety v0.0.0
	github.com/holdfast-go/holdfast/natslock v0.0.0
	github.com/holdfast-go/holdfast/redislock v0.0.0
	github.com/jackc/pgx/v5 v5.12.0
	github.com/redis/rueidis v1.0.79
	go.uber.org/goleak v1.3.0
	modernc.org/sqlite v1.61.1
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/anishathalye/porcupine v1.3.1 // indirect
	github.com/dustin/go-humanize v1.1.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/klauspost/compress v1.20.0 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/nats-io/nats.go v1.55.0 // indirect
	github.com/nats-io/nkeys v0.4.16 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	github.com/ncruces/go-strftime v1.1.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	modernc.org/libc v1.79.0 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
)

replace (
	github.com/holdfast-go/holdfast => ../
	github.com/holdfast-go/holdfast/anylock => ../anylock
	github.com/holdfast-go/holdfast/etcdlock => ../etcdlock
	github.com/holdfast-go/holdfast/internal/safety => ../internal/safety
	github.com/holdfast-go/holdfast/mysqllock => ../mysqllock
	github.com/holdfast-go/holdfast/natslock => ../natslock
	github.com/holdfast-go/holdfast/pglock => ../pglock
	github.com/holdfast-go/holdfast/redislock => ../redislock
	github.com/holdfast-go/holdfast/redlock => ../redlock
	github.com/holdfast-go/holdfast/sqlitelock => ../sqlitelock
	github.com/holdfast-go/holdfast/zklock => ../zklock
)
