package main

func init() {
	const transport = "provisioning/dpstransport/dpstransport.go"
	const session = "provisioning/dpstransport/session.go"
	const moves = "./internal/sim -run TestSimulationOfMoves -seeds 12"
	tables["moves"] = []mutation{
		// When a device asks the provisioning service.
		{File: transport, Old: "case transport.Unauthorized, transport.Forbidden, transport.NotFound:\n\t\tswitch",
			New: "case transport.Unauthorized, transport.NotFound:\n\t\tswitch", Test: moves},
		{File: transport, Old: "case transport.Throttled, transport.Unavailable, transport.Quota,",
			New: "case transport.Quota,", Test: moves},
		{File: transport, Old: "case transport.Throttled, transport.Unavailable, transport.Quota,",
			New:  "case transport.Throttled, transport.Unavailable:\n\t\treturn t.ask(e)\n\tcase transport.Quota,",
			Test: moves},
		{File: transport, Old: "\t\treturn t.refuse(e)\n\tcase", New: "\t\treturn err\n\tcase", Test: moves},
		{File: transport, Old: "|| t.nameFailures >= maxNameFailures {", New: "{", Test: moves},
		{File: transport, Old: "if t.failures >= t.opt.MaxFailures", New: "if t.failures >= 1", Test: moves},
		{File: transport, Old: "max(retry, e.RetryAfter, 0)", New: "0", Test: moves},

		// What a move takes along, and what not.
		{File: transport, Old: "t.record, t.before, t.transport = r, r, nil", New: "t.record, t.before = r, r", Test: moves},
		{File: session, Old: "// TwinNumber implements",
			New: "// Send drops messages after a move.\nfunc (s session) Send(batch []transport.Item) {\n\tif s.twin == 0 {\n" +
				"\t\ts.Session.Send(batch)\n\t}\n}\n\n// TwinNumber implements", Test: moves},
		{File: session, Old: "{ return s.twin }", New: "{ return 0 }", Test: moves},
		{File: "device/twincalls.go", Old: "\t\t\tt.changes.latestValid = false\n", New: "\t\t\t_ = number\n",
			Test: "./device -run TestAnotherTwinIsDeliveredAsAWhole"},
		{File: "device/twinserve.go", Old: "\t\tt.changes.stale = true // a change", New: "\t\t_ = t // a change",
			Test: "./device -run TestAChangeOfAnotherTwinIsNotTheNextOne"},
		{File: "provisioning/dpscert/dpscert.go", Old: "transport.Error{Kind: transport.Unauthorized,",
			New: "transport.Error{Kind: transport.Invalid,", Test: "./internal/sim -run TestProvisioningMatrix/https/move -all"},
	}
}
