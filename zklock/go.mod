module github.com/holdfast-go/holdfast/zklock

go 1.26.0

require (
	github.com/go-zookeeper/zk v1.0.4
	github.com/holdfast-go/holdfast v0.0.0
)

require go.uber.org/goleak v1.3.0 // indirect

replace github.com/holdfast-go/holdfast => ../
