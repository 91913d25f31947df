package testbroker_test

import (
	"context"
	"fmt"
	"log"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func ExampleHub_Dial_amqp() {
	ctx := context.Background()
	hub, dev := hubWith("dev-1", nil)
	defer hub.Close()

	stream, err := hub.Dial(testbroker.PortAMQP)(ctx, "tcp", "hub")
	if err != nil {
		log.Fatal(err)
	}
	conn, err := amqp.NewConn(ctx, stream, &amqp.ConnOptions{
		HostName: hub.HostName(), SASLType: amqp.SASLTypePlain("dev-1@sas.hub", hubtest.Token(dev)),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	sender, err := session.NewSender(ctx, "/devices/dev-1/messages/events", nil)
	if err != nil {
		log.Fatal(err)
	}

	hub.Inject(fault.Fault{Kind: fault.RejectMessage, Condition: "com.microsoft:device-container-throttled",
		Description: "slow down"})
	for range 2 {
		err := sender.Send(ctx, amqp.NewMessage([]byte(`{"celsius":71}`)), nil)
		fmt.Println(err != nil, hub.Len())
	}
	// Output:
	// true 0
	// false 1
}
