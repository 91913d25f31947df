module github.com/hubline-iot/hubline/cloudevents

go 1.26.0

require (
	github.com/cloudevents/sdk-go/v2 v2.16.2
	github.com/hubline-iot/hubline v0.1.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/eclipse/paho.mqtt.golang v1.5.1 // indirect
	github.com/gorilla/websocket v1.5.3 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/mochi-mqtt/server/v2 v2.7.9 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.2 // indirect
	github.com/rs/xid v1.6.0 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
)
