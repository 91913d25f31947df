package sim_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// brokerMatrix has the faults of MQTT 3.1.1 at a plain broker, for engines with a topic map.
var brokerMatrix = matrix{
	protocol: hubdata.MQTT,
	engines:  []string{"paho, topic map", "mqtt, topic map"},
	rows:     sorted(slices.Concat(mqttRows(), brokerRows(network))),
	ops:      mqttOps(),
	rowless: rowless("a fault of MQTT 5", fault.RefusePublish, fault.RefuseAuth, fault.SwallowAuth,
		fault.SlowAuth),
}

// fiveMatrix has the faults of MQTT 5.
var fiveMatrix = matrix{
	protocol: hubdata.MQTT,
	engines:  []string{"mqtt, MQTT 5", "mqtt, MQTT 5, QoS 2", "mqtt, MQTT 5, enhanced authentication"},
	rows:     fiveRows(),
	ops:      mqttOps(),
	rowless:  rowless(""),
}

// rowless returns the kinds of faults without a row at a plain broker, besides those without one at
// a hub.
func rowless(reason string, of ...fault.Kind) map[fault.Kind]string {
	all := mqttRowless("")
	for _, k := range of {
		all[k] = reason
	}
	return all
}

// brokerRows are the faults that only plain brokers have, in all versions. ended is the Kind of a
// connection that the broker ends in order.
func brokerRows(ended transport.Kind) []row {
	type F = fault.Fault
	return []row{
		{name: "DisconnectWhileIdle", fault: F{Kind: fault.DisconnectWhileIdle, Delay: time.Second}, kinds: kinds(ended)},
		{name: "DisconnectOnPublish", fault: F{Kind: fault.DisconnectOnPublish}, class: atPublish, kinds: kinds(ended)},
		{name: "DropOnReceipt", fault: F{Kind: fault.DropOnReceipt}, class: atSettle, kinds: kinds(network)},
	}
}

// fiveRows are the faults of MQTT 5. Where the broker ends a connection, its DISCONNECT says why.
func fiveRows() []row {
	type F = fault.Fault
	rows := mqttRows()
	for i := range rows {
		if k := rows[i].fault.Kind; k == fault.Throttle || k == fault.Quota {
			rows[i].kinds = append(slices.Clone(rows[i].kinds), quota)
		}
	}
	rows = append(rows,
		row{name: "RefusePublish 0x97", fault: F{Kind: fault.RefusePublish}, class: atPublish, kinds: kinds(quota)},
		row{name: "RefusePublish 0x87", fault: F{Kind: fault.RefusePublish, Code: 0x87}, class: atPublish,
			refused: kinds(transport.Forbidden)},
		row{name: "RefuseAuth", fault: F{Kind: fault.RefuseAuth}, kinds: kinds(unauthorized), terminal: true},
		row{name: "SwallowAuth", fault: F{Kind: fault.SwallowAuth}, kinds: kinds(timeout)},
		row{name: "SlowAuth", fault: F{Kind: fault.SlowAuth, Delay: 3 * time.Second}},
	)
	for code, kind := range map[byte]transport.Kind{0x80: unavailable, 0x82: protocol, 0x89: throttled, 0x97: quota,
		0x9c: unavailable} {
		rows = append(rows, row{name: fmt.Sprintf("DisconnectOnPublish 0x%x", code),
			fault: F{Kind: fault.DisconnectOnPublish, Code: code}, class: atPublish, kinds: kinds(kind)})
	}
	return sorted(slices.Concat(rows, brokerRows(unavailable)))
}
