package main

func init() {
	tables["renewal"] = []mutation{
		{File: "transport/amqp/session.go", Old: "s.c2d.unsettled, s.c2d.bySequence = nil, nil, nil, nil",
			New: "s.c2d.unsettled = nil, nil, nil", Test: "./transport/amqp -run TestARedeliveryWhileTheSessionEnds"},

		// A replacement waits a limited time for the handler and for messages in flight.
		{File: "device/inbox.go", Old: "busy := b.handling || b.answered > 0", New: "busy := false",
			Test: "./device -run TestARenewalWaits"},
		{File: "device/renew.go", Old: "k.why == TokenRenewal && !l.c.outbox.idle()", New: "false",
			Test: "./device -run TestARenewalEnds"},

		// The simulation counts renewals.
		{File: "device/renew.go", Old: "l.conn.plan, l.conn.planAt = renew, wall.Add(", New: "_, _ = renew, wall.Add(",
			Test: "./internal/sim -run TestSimulation/lean$ -seeds 30"},
	}
}
