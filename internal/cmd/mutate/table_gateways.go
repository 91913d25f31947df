package main

func init() {
	const (
		runs  = "./internal/sim -run TestSimulationOfGateways -seeds 8"
		cells = "./internal/sim -run TestMatrixOfGateways -all"
	)
	tables["gateways"] = []mutation{
		// The trust bundle of the first connection is used for ever.
		{File: "edge/trust.go", Old: "due = age >= minFetch", New: "due = false", Test: cells},
		// A call that comes twice runs twice.
		{File: "device/methods.go", Old: "\t\tm.totals.doubled++\n\t\treturn true, true\n", New: "\t\tm.totals.doubled++\n",
			Test: cells},
		// A call of a module is repeated although it may have run.
		{File: "edge/invoke_call.go", Old: "c.unknown = c.unknown || conn.Sent()", New: "", Test: runs},
		// Verdicts of a former session settle messages of this one.
		{File: "device/inbox.go", Old: "if p.session == b.session || p.once {", New: "if true {", Test: runs},
		// Messages that were in flight are sent after newer ones.
		{File: "device/outbox_session.go", Old: "\tb.cursor = b.nextQueuedLocked(b.head)\n}\n\n// answerDueFrom",
			New: "}\n\n// answerDueFrom", Test: runs},
	}
}
