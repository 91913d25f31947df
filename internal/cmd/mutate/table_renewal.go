package main

func init() {
	tables["renewal"] = []mutation{
		{File: "transport/amqp/session.go", Old: "s.commands.unsettled, s.commands.bySequence = nil, nil, nil, nil", New: "s.commands.unsettled = nil, nil, nil", Test: "./transport/amqp -run TestARedeliveryMeets"},

		// The simulation counts renewals.
		{File: "device/renew.go", Old: "l.renewAt = wall.Add(", New: "_ = wall.Add(", Test: "./internal/sim -run TestSimulation/lean$ -seeds 30"},
	}
}
