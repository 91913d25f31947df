package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
)

// backEnd is the other side: it is a client of the same broker, commands the pump and counts what
// comes from it.
type backEnd struct {
	client   *device.Client
	mu       sync.Mutex
	seen     map[int]int // how often each reading came
	states   []string
	commands int
	answered map[string]int // answers by the id of the command
	changed  chan struct{}  // capacity 1
}

func openBackEnd(ctx context.Context, url string) (*backEnd, error) {
	creds, options, err := mqtt.ParseBroker(url)
	if err != nil {
		return nil, err
	}
	creds.DeviceID = "back-end"
	at := func(topic string) string { return strings.ReplaceAll(topic, "{device}", "+") }
	options.Dialect = &mqtt.Topics{
		Telemetry: strings.ReplaceAll(commands, "{device}", "pump-1"),
		Commands:  []string{at(telemetry), at(answers), at(state)},
	}
	options.Protocol = protocol
	b := &backEnd{seen: map[int]int{}, answered: map[string]int{}, changed: make(chan struct{}, 1)}
	// The inbox has room for all messages that a broker sends before the first is acknowledged: one
	// that finds no room comes again with the next connection only.
	o := &device.Options{Inbox: 4096}
	if b.client, err = device.New(creds, mqtt.New(options), o); err != nil {
		return nil, err
	}
	if err := b.client.HandleMessages(b.take); err != nil {
		return nil, err
	}
	return b, b.client.Open(ctx)
}

// take counts a message of the pump.
func (b *backEnd) take(_ context.Context, m *transport.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case strings.HasSuffix(m.Topic, "/state"):
		if !m.Retain { // not one of an earlier run
			say("back end", "pump-1 is %s", m.Body)
			b.states = append(b.states, string(m.Body))
		}
	case strings.HasSuffix(m.Topic, "/answers"):
		say("back end", "the command %s is answered: %s", m.CorrelationID, m.Body)
		b.answered[m.CorrelationID]++
	default:
		var reading struct{ N int }
		if err := json.Unmarshal(m.Body, &reading); err != nil {
			return err
		}
		b.seen[reading.N]++
	}
	select {
	case b.changed <- struct{}{}:
	default:
	}
	return nil
}

// command sends a command. During an outage it waits in the back end's outbox, and while the pump
// is away, at the broker.
func (b *backEnd) command(ctx context.Context) {
	b.mu.Lock()
	b.commands++
	id := fmt.Sprintf("c-%d", b.commands)
	b.mu.Unlock()
	if err := b.client.Enqueue(ctx, &transport.Message{ID: id, Body: []byte(`"blink"`)}, nil); err != nil {
		say("back end", "the command %s: %v", id, err)
	}
}

// ledger waits for what is on its way, prints the counts, and returns an error if something is
// missing.
func (b *backEnd) ledger(acknowledged int, wasAway bool) error {
	states := 1 // the birth message; with the outage also the will and the next birth
	if wasAway {
		states = 3
	}
	timeout := time.After(10 * time.Second)
	for done := false; !done && !b.complete(states); {
		select {
		case <-b.changed:
		case <-timeout:
			done = true
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	twice := 0
	for _, times := range b.seen {
		twice += times - 1
	}
	fmt.Printf("\nledger   readings %d, acknowledged %d, at the back end %d, lost %d, twice %d\n", readings, acknowledged,
		len(b.seen), acknowledged-len(b.seen), twice)
	fmt.Printf("         commands %d, answered %d\n", b.commands, len(b.answered))
	fmt.Printf("         the pump was %s\n", strings.Join(b.states, ", "))
	if acknowledged != readings || len(b.seen) != readings || len(b.answered) != b.commands || len(b.states) < states {
		return errors.New("something is missing")
	}
	return nil
}

func (b *backEnd) complete(states int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.seen) == readings && len(b.answered) == b.commands && len(b.states) >= states
}
