module amenzhinsky

go 1.26

require github.com/amenzhinsky/iothub v0.9.0

require github.com/Azure/go-amqp v0.17.0 // indirect
