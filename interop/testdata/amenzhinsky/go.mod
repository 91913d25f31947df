module amenzhinsky

go 1.26

require github.com/amenzhinsky/iothub v0.9.0

require (
	github.com/Azure/go-amqp v0.17.0 // indirect
	github.com/eclipse/paho.mqtt.golang v1.3.5 // indirect
	github.com/gorilla/websocket v1.4.2 // indirect
	golang.org/x/net v0.0.0-20211020060615-d418f374d309 // indirect
)
