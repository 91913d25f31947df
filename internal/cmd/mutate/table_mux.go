package main

func init() {
	tables["mux"] = []mutation{
		// The window of a connection.
		{File: "transport/amqp/window.go", Old: "case delay > w.base+fullDelay:", New: "case delay < 0:",
			Test: "./transport/amqp -run TestTheWindowShrinks"},
		{File: "transport/amqp/window.go", Old: "float64(w.base+aimDelay)", New: "float64(aimDelay)",
			Test: "./transport/amqp -run TestTheWindowFollows"},
		{File: "transport/amqp/window.go", Old: "x := w.waiting[0]\n\t\tw.waiting = slices.Delete(w.waiting, 0, 1)",
			New:  "x := w.waiting[len(w.waiting)-1]\n\t\tw.waiting = w.waiting[:len(w.waiting)-1]",
			Test: "./transport/amqp -run TestDevicesTakeTurns"},
		{File: "transport/amqp/window.go", Old: "\tif len(w.waiting) == 1 {\n\t\tw.reclaimLaterLocked()\n\t}\n", New: "",
			Test: "./transport/amqp -run TestATransferWithoutCredit"},
		{File: "transport/amqp/window.go", Old: "\tif !x.passed.IsZero() {", New: "\tif false {",
			Test: "./transport/amqp -run TestProgressOfADevice"},
		{File: "transport/amqp/window.go", Old: "later(later(x.since, w.moved), w.stream.progress())", New: "x.since",
			Test: "./transport/amqp -run TestProgressOfADevice"},
		{File: "transport/amqp/window.go", Old: " || w.dropped.After(received)", New: "",
			Test: "./transport/amqp -run TestAPeerThatIsSilent"},
		{File: "transport/amqp/window.go", Old: "w.stream.fail(errSilent)", New: "",
			Test: "./transport/amqp -run TestASharedConnectionThatFallsSilent"},
		{File: "transport/amqp/window.go", Old: "steps: 3}", New: "steps: 0}", Test: "./transport/amqp -run TestManyJoin"},
		{File: "transport/amqp/await.go", Old: "r.progress()", New: "_ = r.progress", Test: "./transport/amqp -run TestManyJoin"},
		{File: "transport/amqp/telemetry.go", Old: "s.conn.window.leave(t)", New: "",
			Test: "./transport/amqp -run TestADeviceThatLeavesGivesUpItsPart"},
		{File: "transport/amqp/telemetry.go", Old: "s.conn.stream.waitRoom(s.ctx)", New: "",
			Test: "./transport/amqp -run TestWhatWaitsToBeWritten"},
		{File: "transport/amqp/telemetry.go", Old: "return transport.Invalid", New: "return transport.Unavailable",
			Test: "./transport/amqp -run TestAMessageThatCannotBeEncoded"},

		// Dials of a Mux.
		{File: "transport/amqp/muxdial.go", Old: "m.lastHost != host {\n\t\t\tm.pause, m.lastHost = 0, host",
			New: "m.lastHost != host {\n\t\t\tm.lastHost = host", Test: "./transport/amqp -run TestThePauseBetweenDials"},
		{File: "transport/amqp/muxdial.go", Old: "max(m.pause, min(e.RetryAfter, retryafter.Max))", New: "m.pause",
			Test: "./transport/amqp -run TestNoDeviceDials"},
		{File: "transport/amqp/muxdial.go", Old: "c.accepted, m.pause = true, 0", New: "c.accepted = true",
			Test: "./transport/amqp -run TestThePauseBetweenDials"},
		{File: "transport/amqp/mux.go", Old: "own.Passed = m.connected", New: "own.Passed = nil",
			Test: "./transport/amqp -run TestAllAreBack"},
		{File: "device/outage.go", Old: "until = earlier(until, l.outage.began.Add(l.spread))", New: "until = now",
			Test: "./device -run TestADelayEnds"},
		{File: "device/dial.go", Old: "if c.progress.Swap(false) {", New: "if false {",
			Test: "./device -run TestADialThatMakesProgress"},

		// Tokens, marks and goodbyes.
		{File: "transport/amqp/cbs.go", Old: "\tch := t.waiting[id]\n",
			New:  "\tvar ch chan tokenAnswer\n\tfor id, ch = range t.waiting {\n\t\tbreak\n\t}\n",
			Test: "./transport/amqp -run TestEachDeviceGets"},
		{File: "transport/amqp/cbs.go", Old: "if ctx.Err() == nil || context.Cause(ctx) == errNoAnswer {", New: "if true {",
			Test: "./transport/amqp -run TestADeviceThatLeavesKeeps"},
		{File: "transport/amqp/message.go", Old: "again = h.DeliveryCount > 0", New: "_ = h",
			Test: "./transport/amqp -run TestACommandThatComesAgain"},
		{File: "transport/amqp/message.go", Old: "again = again || n > 0", New: "again = n > 0",
			Test: "./transport/amqp -run TestACommandThatComesAgain"},
		{File: "transport/amqp/connection.go", Old: "time.AfterFunc(closeTimeout,", New: "time.AfterFunc(0,",
			Test: "./transport/amqp -run TestAGoodbyeIsNotCutOff"},
	}
}
