module github.com/holdfast-go/holdfast/redislock

go 1.26.0

require (
	github.com/holdfast-go/holdfast v0.0.0
	github.com/redis/rueidis v1.0.79
)

require (
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace github.com/holdfast-go/holdfast => ../
