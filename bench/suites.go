package main

import (
	"fmt"
)

// suite is a comparison that the command offers: its senders, its goals, and the place of its
// results.
type suite struct {
	name     string // on the command line
	protocol *Protocol
	goals    []goal
	cpu      *goal  // about settings of cpuSize, which are measured for it; nil: none
	page     string // with the tables
	picture  string
	curves   []int  // of the picture, by sender
	legend   string // of the tables
}

var suites = []*suite{
	{
		name:     "mqtt",
		protocol: MQTT,
		goals: []goal{
			{"over mqtt, hub, window 128 and more: times raw paho", []string{"hub"}, 128, throughput(byEngine), 1.5, false},
			{"over mqtt, bare responder, window 128 and more: times raw paho", []string{"bare"}, 128, throughput(byEngine), 10,
				false},
			{"over paho, everywhere: times raw paho", nil, 1, throughput(byPaho), 0.95, false},
			{"over mqtt, bare responder, window 128 and more: CPU time with ids, as a part of that without", []string{"bare"},
				128, func(c *comparison) float64 {
					return c.of(byEngineIDs, cpu).median() / c.of(byEngine, cpu).median()
				}, 1.1, true},
			{"over mqtt, everywhere: allocations for a message",
				nil, 1, func(c *comparison) float64 { return c.of(byEngine, allocated).median() }, 0, true},
		},
		cpu: &goal{"over mqtt, TLS, 256 B, window 128: CPU time for a message, as a part of raw paho's", nil, cpuWindow,
			func(c *comparison) float64 { return c.ratio(byEngine, cpu).median() }, 0.47, true},
		page:    "results/mqtt.md",
		picture: "../docs/mqtt-throughput.svg",
		curves:  []int{byLimit, byPaho, byEngine, byEngineIDs},
		legend: "over mqtt, over paho: Hubline’s device client on either engine, without message ids, as raw paho. " +
			"ids: with those that a client gives by default. limit: packets encoded beforehand, acknowledgements only counted.",
	},
	{
		name:     "mqtt5",
		protocol: MQTT5,
		goals: []goal{
			{"Hubline over MQTT 5, mochi, window 128 and more: times raw paho.golang", []string{"mochi"}, 128,
				throughput(byMQTT5), 2, false},
			{"Hubline over MQTT 5, everywhere: allocations for a message",
				nil, 1, func(c *comparison) float64 { return c.of(byMQTT5, allocated).median() }, 0, true},
		},
		page:    "results/mqtt5.md",
		picture: "../docs/mqtt5-throughput.svg",
		curves:  []int{byLimit, byTopics, byMQTT5},
		legend: "Hubline 3.1.1, Hubline 5: the device client over mqtt. limit: packets encoded beforehand, " +
			"acknowledgements only counted.",
	},
	{
		name:     "amqp",
		protocol: AMQP,
		goals: []goal{
			{"Hubline, window 128 and more: times raw go-amqp", nil, 128, throughput(byBatches), 0.95, false},
			{"Hubline: allocations for a message more than raw go-amqp", nil, 1, moreAllocations(byBatches), MoreAllocs,
				true},
			{"Hubline, no batches: allocations for a message more than raw go-amqp", nil, 1, moreAllocations(byTransfers),
				MoreAllocs, true},
		},
		page:    "results/amqp.md",
		picture: "../docs/amqp-throughput.svg",
		curves:  []int{byTransfers, byBatches},
		legend: "Hubline: the device client, in which messages that wait at the same moment share a transfer. no batches: " +
			"a transfer for each, as the raw library has it.",
	},
}

// The senders, by their index in the suite's protocol. The raw library is the first.
const (
	byLimit, byPaho, byEngine, byEngineIDs = 1, 2, 3, 4 // of MQTT
	byTopics, byMQTT5                      = 2, 3       // of MQTT 5, after the limit
	byBatches, byTransfers                 = 1, 2       // of AMQP
)

func throughput(sender int) func(*comparison) float64 {
	return func(c *comparison) float64 { return c.ratio(sender, rate).median() }
}

func moreAllocations(sender int) func(*comparison) float64 {
	return func(c *comparison) float64 { return c.of(sender, allocated).median() - c.of(0, allocated).median() }
}

// marks returns the marks in the page around the tables.
func (s *suite) marks() (begin, end string) {
	return fmt.Sprintf("<!-- %s: begin; written by go run . %[1]s -write -->\n", s.name),
		fmt.Sprintf("<!-- %s: end -->\n", s.name)
}
