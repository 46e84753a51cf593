module github.com/holdfast-go/holdfast/internal/proof

go 1.26.0

require (
	github.com/holdfast-go/holdfast v0.0.0
	github.com/holdfast-go/holdfast/internal/safety v0.0.0
	go.uber.org/goleak v1.3.0
)

replace (
	github.com/holdfast-go/holdfast => ../../
	github.com/holdfast-go/holdfast/anylock => ../../anylock
	github.com/holdfast-go/holdfast/etcdlock => ../../etcdlock
	github.com/holdfast-go/holdfast/internal/safety => ../../internal/safety
	github.com/holdfast-go/holdfast/mysqllock => ../../mysqllock
	github.com/holdfast-go/holdfast/pglock => ../../pglock
	github.com/holdfast-go/holdfast/redislock => ../../redislock
	github.com/holdfast-go/holdfast/redlock => ../../redlock
	github.com/holdfast-go/holdfast/sqlitelock => ../../sqlitelock
	github.com/holdfast-go/holdfast/zklock => ../../zklock
)
