package main

func init() {
	const screen, sent, read, table = "transport/amqp/screen.go", "transport/amqp/screensent.go",
		"transport/amqp/screenread.go", "transport/amqp/screentable.go"
	tables["amqpscreen"] = []mutation{
		// What a frame is.
		{File: "internal/amqpwire/walk.go", Old: "key.Type&isKey == 0", New: "key.Type&isKey == 0 && depth < 2",
			Test: "./transport/amqp -run TestFramesAreCheckedWhole|TestMessagesAreCheckedWhole"},
		{File: "internal/amqpwire/walk.go", Old: "if w.items--; w.items < 0 {", New: "if w.items--; false {",
			Test: "./internal/amqpwire -run TestWalker"},
		{File: screen, Old: "case b[5] != want:", New: "case b[5] > 1:",
			Test: "./transport/amqp -run TestFrameTypeAndDataOffsetAreChecked"},
		{File: screen, Old: "case head > wire.HeaderSize || body[1] != 0x53:", New: "case body[1] != 0x53:",
			Test: "./transport/amqp -run TestFrameTypeAndDataOffsetAreChecked"},
		{File: table, Old: "if f.must {", New: "if f.must && f.is != wire.IsUint {",
			Test: "./transport/amqp -run TestFramesAreCheckedWhole"},
		{File: table, Old: "name: \"max-frame-size\", is: wire.IsUint, least: minFrameSize",
			New: "name: \"max-frame-size\", is: wire.IsUint", Test: "./transport/amqp -run TestTheHandshakeIsChecked"},

		// What was said before.
		{File: screen, Old: "case f.null(linkCredit) && f.null(deliveryCount):", New: "case false:",
			Test: "./transport/amqp -run TestAFlowWithoutCreditKeepsTheCredit"},
		{File: screen, Old: "f.set(nextIncoming, h.transfers)", New: "f.set(nextIncoming, 0)",
			Test: "./transport/amqp -run TestAFlowWithoutACountGetsOurs"},
		{File: sent, Old: "end := min(int(int32(to-d.base)), 64*len(d.bits)-1)", New: "end := 64*len(d.bits) - 1",
			Test: "./transport/amqp -run TestADispositionNamesNoMoreThanWasSent"},
		{File: screen, Old: "if high != to || f.null(last) && low != high {", New: "if f.null(last) && low != high {",
			Test: "./transport/amqp -run TestADispositionNamesNoMoreThanWasSent"},
		{File: screen, Old: "case id == math.MaxUint32:", New: "case false:",
			Test: "./transport/amqp -run TestADispositionNamesNoMoreThanWasSent"},
		{File: screen, Old: "case int32(l.limit-l.received) <= 0:", New: "case int32(l.limit-l.received) < 0:",
			Test: "./transport/amqp -run TestMessagesAreCheckedWhole"},
		{File: screen, Old: "if s.parts > maxParts {", New: "if len(p.payload) > maxParts {",
			Test: "./transport/amqp -run TestMessagesWithoutEndsAreCutOff"},
		{File: sent, Old: "l.most = min(l.most, most)", New: "", Test: "./transport/amqp -run TestALinksOwnLimitHolds"},

		{File: screen, Old: "f.set(settleMode, first)", New: "", Test: "./transport/amqp -run TestAReceiverSettlesFirst"},
		{File: sent, Old: "d.base = id // also when the gap is wider than the span", New: "",
			Test: "./transport/amqp -run TestAnOldUnsettledDeliveryCostsNoMemory"},

		{File: "transport/amqp/connection.go", Old: "if e := refusedHere(err); e != nil {",
			New:  "if e := refusedHere(err); false {",
			Test: "./transport/amqp -run TestAMessageThatTheLibraryCannotDecodeSaysWhy"},

		// How it is read.
		{File: read, Old: "if reads > 0 && in.idle > 0 {", New: "if false {",
			Test: "./transport/amqp -run TestWhatComesIsNoSilence"},
	}
}
