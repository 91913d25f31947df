package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/examples/internal/setup"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/workload"
	"github.com/hubline-iot/hubline/transport"
)

// routes lead from the sensor to the filter, and from there to the hub.
var routes = []string{
	`FROM /messages/modules/sensor/outputs/* INTO BrokeredEndpoint("/modules/filter/inputs/readings")`,
	`FROM /messages/modules/filter/outputs/hot INTO $upstream`,
}

// edgeDevice is an edge device in this process, and its hub.
type edgeDevice struct {
	hub    *testbroker.Hub
	daemon *workload.Server
	ports  setup.Ports
	name   string // of the transport
	sent   int    // readings by the sensor
}

// runAlone runs the filter on an edge device of its own.
func runAlone(ctx context.Context, name string, ports setup.Ports) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	e := &edgeDevice{ports: ports, name: name}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := e.start(); err != nil {
		return err
	}
	m, err := e.module("filter")
	if err != nil {
		return err
	}
	filter, err := startFilter(ctx, name, m)
	if err != nil {
		return err
	}
	defer filter.Close()
	sensor, err := e.startSensor(ctx)
	if err != nil {
		return err
	}
	defer sensor.Close()
	if err := e.check(ctx, sensor); err != nil {
		return err
	}
	s := filter.Stats()
	fmt.Printf("in order: %d readings came, the hub got those above the threshold, each once; %d connections\n",
		e.sent, s.Connections)
	return errors.Join(sensor.Close(), filter.Close())
}

// start starts hub, gateway and daemon.
func (e *edgeDevice) start() (err error) {
	e.hub, err = testbroker.New(&testbroker.Options{
		Gateway: &testbroker.GatewayOptions{Name: "gateway.local", DeviceID: "edge-1", Routes: routes},
	})
	if err != nil {
		return err
	}
	if _, err := e.hub.AddDevice("edge-1"); err != nil {
		return err
	}
	for _, id := range []string{"filter", "sensor"} {
		if _, err := e.hub.AddModule("edge-1", id); err != nil {
			return err
		}
	}
	e.daemon, err = workload.New(e.hub, &workload.Options{GatewayHostName: e.hub.GatewayName()})
	return err
}

func (e *edgeDevice) close() (err error) {
	if e.daemon != nil {
		err = e.daemon.Close()
	}
	if e.hub != nil {
		err = errors.Join(err, e.hub.Close())
	}
	return err
}

// module returns a module from the environment that the runtime would give it.
func (e *edgeDevice) module(id string) (*edge.Module, error) {
	m, err := edge.FromEnvironment(&edge.Options{
		LookupEnv: workload.LookupEnv(e.daemon.Environment("edge-1", id)), Dial: e.daemon.Dial,
	})
	if err == nil {
		m.Network.Dial = e.hub.Dial(e.ports.Hub)
	}
	return m, err
}

// startSensor connects the module that sends readings.
func (e *edgeDevice) startSensor(ctx context.Context) (*device.Client, error) {
	m, err := e.module("sensor")
	if err != nil {
		return nil, err
	}
	client, err := device.New(m.Credentials, setup.Transport(e.name, m.Credentials, m.Network), nil)
	if err != nil {
		return nil, err
	}
	return client, client.Open(ctx)
}

// check is the sensor and the back end.
func (e *edgeDevice) check(ctx context.Context, sensor *device.Client) error {
	if err := e.read(ctx, sensor, 20, 26, 31); err != nil {
		return err
	}
	if err := e.desire(ctx, 30); err != nil {
		return err
	}
	if err := e.read(ctx, sensor, 27, 35); err != nil {
		return err
	}
	fmt.Println("gateway  restarts with a certificate of another authority")
	if err := e.hub.StopGateway(); err != nil {
		return err
	}
	e.hub.RotateCertificate()
	if err := e.hub.StartGateway(); err != nil {
		return err
	}
	if err := e.read(ctx, sensor, 40); err != nil {
		return err
	}
	if err := e.hub.WaitMessages(ctx, 4); err != nil {
		return err
	}
	var got []string
	for _, m := range e.hub.Messages() {
		got = append(got, string(m.Body))
	}
	want := []string{`{"celsius":26}`, `{"celsius":31}`, `{"celsius":35}`, `{"celsius":40}`}
	if !slices.Equal(got, want) {
		return fmt.Errorf("the hub got %q, want %q", got, want)
	}
	result, err := e.hub.CallMethod(ctx, "edge-1/filter", hubdata.MethodCall{Name: "count",
		ConnectTimeout: 10 * time.Second})
	fmt.Printf("back end calls count: %d %s\n", result.Status, result.Payload)
	if err == nil && string(result.Payload) != `{"received":6,"above":4}` {
		err = errors.New("count is wrong")
	}
	return err
}

// read sends readings and waits until the filter has handled them.
func (e *edgeDevice) read(ctx context.Context, sensor *device.Client, celsius ...float64) error {
	for _, c := range celsius {
		body := fmt.Appendf(nil, `{"celsius":%v}`, c)
		if err := sensor.Send(ctx, &transport.Message{Output: "readings", Body: body}); err != nil {
			return err
		}
		fmt.Printf("sensor   sent %s\n", body)
	}
	e.sent += len(celsius)
	return e.hub.WaitInputs(ctx, "edge-1/filter", hubdata.C2DCompleted, e.sent)
}

// desire sets the threshold and waits until the filter has reported it.
func (e *edgeDevice) desire(ctx context.Context, threshold int) error {
	version, err := e.hub.PatchDesired("edge-1/filter", fmt.Sprintf(`{"threshold":%d}`, threshold))
	if err != nil {
		return err
	}
	fmt.Printf("back end desires a threshold of %d: version %d\n", threshold, version)
	want := fmt.Sprintf(`{"threshold":%d}`, threshold)
	return e.hub.WaitReported(ctx, "edge-1/filter", func(t hubdata.Twin) bool { return string(t.Reported) == want })
}
