module github.com/hubline-iot/hubline

// The oldest release that works: errors.AsType came with Go 1.26, and golang.org/x/net needs it
// after v0.58.0.
go 1.26.0

require (
	github.com/Azure/go-amqp v1.7.0
	github.com/eclipse/paho.mqtt.golang v1.5.1
	github.com/gorilla/websocket v1.5.3
	github.com/mochi-mqtt/server/v2 v2.7.9
	github.com/stretchr/testify v1.12.1
	go.etcd.io/bbolt v1.5.0
	golang.org/x/net v0.62.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/rs/xid v1.6.0 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/sync v0.24.0 // indirect
)
