package main

import (
	"fmt"

	"github.com/hubline-iot/hubline/bench"
)

// suite is a comparison that the command offers: its senders, its goals, and the place of its
// results.
type suite struct {
	flag     string // of the command line; none for the first
	protocol *bench.Protocol
	goals    []goal
	cpu      *goal  // about settings of cpuSize, which are measured for it; nil: none
	page     string // with the tables
	picture  string
	curves   []int  // of the picture, by sender
	legend   string // of the tables
}

var suites = []*suite{
	{
		protocol: bench.MQTT,
		goals: []goal{
			{"over mqtt, hub, window 128 and more: times raw paho", []string{"hub"}, 128, throughput(engine), 1.5, false},
			{"over mqtt, bare responder, window 128 and more: times raw paho", []string{"bare"}, 128, throughput(engine), 10,
				false},
			{"over paho, everywhere: times raw paho", nil, 1, throughput(paho), 0.95, false},
			{"over mqtt, bare responder, window 128 and more: CPU time with ids, as a part of that without", []string{"bare"},
				128, func(c *comparison) float64 { return c.of(withIDs, cpu).median() / c.of(engine, cpu).median() }, 1.1, true},
			{"over mqtt, everywhere: allocations for a message",
				nil, 1, func(c *comparison) float64 { return c.of(engine, allocated).median() }, 0, true},
		},
		cpu: &goal{"over mqtt, TLS, 256 B, window 128: CPU time for a message, as a part of raw paho's", nil, cpuWindow,
			func(c *comparison) float64 { return c.ratio(engine, cpu).median() }, 0.47, true},
		page:    "results/mqtt.md",
		picture: "../docs/mqtt-throughput.svg",
		curves:  []int{limit, paho, engine, withIDs},
		legend: "over mqtt, over paho: Hubline’s device client on either engine, without message ids, as raw paho. " +
			"ids: with those that a client gives by default. limit: packets encoded beforehand, acknowledgements only counted.",
	},
	{
		flag:     "mqtt5",
		protocol: bench.MQTT5,
		goals: []goal{
			{"Hubline over MQTT 5, mochi, window 128 and more: times raw paho.golang", []string{"mochi"}, 128,
				throughput(five), 2, false},
			{"Hubline over MQTT 5, everywhere: allocations for a message",
				nil, 1, func(c *comparison) float64 { return c.of(five, allocated).median() }, 0, true},
		},
		page:    "results/mqtt5.md",
		picture: "../docs/mqtt5-throughput.svg",
		curves:  []int{limit, four, five},
		legend: "Hubline 3.1.1, Hubline 5: the device client over mqtt. limit: packets encoded beforehand, " +
			"acknowledgements only counted.",
	},
	{
		flag:     "amqp",
		protocol: bench.AMQP,
		goals: []goal{
			{"Hubline, window 128 and more: times raw go-amqp", nil, 128, throughput(batches), 0.95, false},
			{"Hubline: allocations for a message more than raw go-amqp", nil, 1, moreAllocations(batches), bench.MoreAllocs,
				true},
			{"Hubline, no batches: allocations for a message more than raw go-amqp", nil, 1, moreAllocations(alone),
				bench.MoreAllocs, true},
		},
		page:    "results/amqp.md",
		picture: "../docs/amqp-throughput.svg",
		curves:  []int{alone, batches},
		legend: "Hubline: the device client, in which messages that wait at the same moment share a transfer. no batches: " +
			"a transfer for each, as the raw library has it.",
	},
}

// The senders, by their index in the suite's protocol. The raw library is the first.
const (
	limit, paho, engine, withIDs = 1, 2, 3, 4 // of MQTT
	four, five                   = 2, 3       // of MQTT 5, after limit
	batches, alone               = 1, 2       // of AMQP
)

func throughput(sender int) func(*comparison) float64 {
	return func(c *comparison) float64 { return c.ratio(sender, rate).median() }
}

func moreAllocations(sender int) func(*comparison) float64 {
	return func(c *comparison) float64 { return c.of(sender, allocated).median() - c.of(0, allocated).median() }
}

// marks returns the marks in the page around the tables.
func (s *suite) marks() (begin, end string) {
	name, flag := "compare", ""
	if s.flag != "" {
		name, flag = name+" "+s.flag, " -"+s.flag
	}
	return fmt.Sprintf("<!-- %s: begin; written by go run ./cmd/compare%s -write -->\n", name, flag),
		fmt.Sprintf("<!-- %s: end -->\n", name)
}

// suiteOf returns the suite of a protocol.
func suiteOf(protocol string) (*suite, error) {
	for _, s := range suites {
		if s.protocol.Name == protocol {
			return s, nil
		}
	}
	return nil, fmt.Errorf("there is no comparison for the protocol %q", protocol)
}
