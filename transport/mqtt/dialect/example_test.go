package dialect_test

import (
	"context"
	"fmt"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// A device at a broker that is no hub, with user name and password, a birth and a will.
func ExampleTopics() {
	creds := &transport.Credentials{Host: "broker.example.com", DeviceID: "pump-7", UserName: "pump",
		Token: transport.FixedToken("the password")}
	state := func(text string) *transport.Message {
		return &transport.Message{Topic: "site/{device}/state", Body: []byte(text), Retain: true}
	}
	client, err := device.New(creds, mqtt.New(&mqtt.Options{
		Dialect: &dialect.Topics{
			Telemetry: "site/{device}/up",
			Commands:  []string{"site/{device}/down/#", "site/all/+"},
			Birth:     state("online"),
		},
		Will: state("offline"),
	}), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Close() }()
	_ = client.Start()
	client.HandleMessages(func(_ context.Context, m *transport.Message) error {
		fmt.Println(m.Topic, string(m.Body))
		return nil
	})
	ctx := context.Background()
	for _, m := range []*transport.Message{
		{Body: []byte(`{"bar":2.1}`)}, // on Telemetry
		{Topic: "site/alarms", Body: []byte("pump-7: too high")},
	} {
		if err := client.Send(ctx, m); err != nil {
			fmt.Println(err)
		}
	}
}
