// Command broker shows a device on an MQTT broker that is no IoT hub: telemetry, commands that are
// answered, a will and a birth message, and an outage in the middle.
//
// Without a URL it starts a broker in this process, which goes away for a while and comes back. The
// ledger at the end counts what arrived. The exit status is 0 only if nothing was lost. At a broker
// of yours it leaves the sessions of its two clients, and the retained state of the pump.
//
//	go run ./examples/broker                                       with a broker of its own
//	go run ./examples/broker -url mqtts://user:password@host:8883  with yours, without the outage
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
)

// The topics of the example. "{device}" becomes the device's id.
const (
	telemetry = "hubline-example/{device}/up"
	commands  = "hubline-example/{device}/down"
	answers   = "hubline-example/{device}/answers"
	state     = "hubline-example/{device}/state"
)

const (
	readings = 100
	interval = 30 * time.Millisecond
	outage   = 1500 * time.Millisecond
)

func main() {
	url := flag.String("url", "",
		"URL of your broker, such as mqtts://user:password@host:8883; empty: one in this process")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, *url); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string) error {
	pumpURL, backEndURL := url, url
	var own *broker
	if url == "" {
		var err error
		if own, err = startBroker(); err != nil {
			return err
		}
		defer own.close()
		pumpURL, backEndURL = own.urls()
	}
	back, err := openBackEnd(ctx, backEndURL)
	if err != nil {
		return err
	}
	defer back.client.Close()
	pump, err := newPump(pumpURL)
	if err != nil {
		return err
	}
	defer pump.Close()
	if err := pump.Open(ctx); err != nil { // retries until connected, or until a retry cannot help
		return err
	}

	var receipts [readings]device.Receipt
	for i := range receipts {
		if i == readings/3 && own != nil {
			own.goAway(outage)
		}
		if i == readings/10 || i == readings/2 { // the second one during the outage
			back.command(ctx)
		}
		reading := fmt.Appendf(nil, `{"n":%d,"bar":%.2f}`, i, 5+float64(i%10)/8)
		if err := pump.Enqueue(ctx, &transport.Message{Created: time.Now(), Body: reading}, &receipts[i]); err != nil {
			return err
		}
		time.Sleep(interval)
	}
	if err := pump.Flush(ctx); err != nil { // until the broker has acknowledged everything
		return err
	}
	acknowledged := 0
	for i := range receipts {
		if err := receipts[i].Wait(ctx); err == nil {
			acknowledged++
		}
	}
	return back.ledger(acknowledged, own != nil)
}

// protocol has a place for the ids of messages, and keeps the sessions of clients that are away.
var protocol = mqtt.MQTT5(&mqtt.MQTT5Options{SessionExpiry: time.Hour})

// newPump returns the device.
func newPump(url string) (*device.Client, error) {
	creds, options, err := mqtt.ParseBroker(url)
	if err != nil {
		return nil, err
	}
	creds.DeviceID = "pump-1"
	options.Dialect = &mqtt.Topics{
		Telemetry: telemetry,
		Commands:  []string{commands},
		Birth:     &transport.Message{Topic: state, Body: []byte(`"online"`), Retain: true},
	}
	options.Will = &transport.Message{Topic: state, Body: []byte(`"offline"`), Retain: true}
	options.Protocol = protocol
	client, err := device.New(creds, mqtt.New(options), &device.Options{
		OnStatus: func(s device.Status) { say("pump", "%v, %v", s.State, s.Reason) },
	})
	if err != nil {
		return nil, err
	}
	err = client.HandleMessages(func(ctx context.Context, m *transport.Message) error {
		say("pump", "is told to %s", m.Body)
		answer := &transport.Message{Topic: strings.ReplaceAll(answers, "{device}", creds.DeviceID), CorrelationID: m.ID,
			Body: []byte(`"done"`)}
		return client.Enqueue(ctx, answer, nil) // accepted; with an error the command stays with the broker
	})
	return client, err
}

var began = time.Now()

// say prints what happens, with seconds since the start.
func say(who, format string, args ...any) {
	fmt.Printf("%5.1fs  %-9s %s\n", time.Since(began).Seconds(), who, fmt.Sprintf(format, args...))
}
