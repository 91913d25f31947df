package main

func init() {
	const (
		screen     = "internal/amqpscreen/screen.go"
		links      = "internal/amqpscreen/links.go"
		delivery   = "internal/amqpscreen/delivery.go"
		deliveries = "internal/amqpscreen/deliveries.go"
		partial    = "internal/amqpscreen/partial.go"
		sent       = "internal/amqpscreen/sent.go"
		read       = "internal/amqpscreen/read.go"
		table      = "internal/amqpscreen/table.go"
	)
	tables["amqpscreen"] = []mutation{
		// The structure of a frame.
		{File: "internal/amqpwire/walk.go", Old: "key.Type&isKey == 0", New: "key.Type&isKey == 0 && depth < 2",
			Test: "./internal/amqpscreen -run TestFramesAreCheckedWhole|TestABrokenMessageIsReplaced"},
		{File: "internal/amqpwire/walk.go", Old: "if w.items--; w.items < 0 {", New: "if w.items--; false {",
			Test: "./internal/amqpwire -run TestWalker"},
		{File: screen, Old: "case b[5] != want:", New: "case b[5] > 1:",
			Test: "./internal/amqpscreen -run TestFrameTypeAndDataOffsetAreChecked"},
		{File: screen, Old: "case head > wire.HeaderSize || body[1] != 0x53:", New: "case body[1] != 0x53:",
			Test: "./internal/amqpscreen -run TestFrameTypeAndDataOffsetAreChecked"},
		{File: table, Old: "if f.required {", New: "if f.required && f.types != wire.IsUint {",
			Test: "./internal/amqpscreen -run TestFramesAreCheckedWhole"},
		{File: table, Old: "name: \"max-frame-size\", types: wire.IsUint, least: minFrameSize",
			New: "name: \"max-frame-size\", types: wire.IsUint", Test: "./internal/amqpscreen -run TestTheHandshakeIsChecked"},

		// State from earlier frames.
		{File: links, Old: "case f.null(linkCredit) && f.null(deliveryCount):", New: "case false:",
			Test: "./internal/amqpscreen -run TestAFlowWithoutCreditKeepsTheCredit"},
		{File: links, Old: "f.set(nextIncoming, h.transfers)", New: "f.set(nextIncoming, 0)",
			Test: "./internal/amqpscreen -run TestAFlowWithoutNextIncomingIDIsCompleted"},
		{File: deliveries, Old: "end := min(int(int32(to-d.base)), 64*len(d.bits)-1)", New: "end := 64*len(d.bits) - 1",
			Test: "./internal/amqpscreen -run TestADispositionNamesNoMoreThanWasSent"},
		{File: delivery, Old: "if high != to || f.null(last) && low != high {", New: "if f.null(last) && low != high {",
			Test: "./internal/amqpscreen -run TestADispositionNamesNoMoreThanWasSent"},
		{File: delivery, Old: "case id == math.MaxUint32:", New: "case false:",
			Test: "./internal/amqpscreen -run TestADispositionNamesNoMoreThanWasSent"},
		{File: delivery, Old: "case int32(l.creditEnd-l.received) <= 0:", New: "case int32(l.creditEnd-l.received) < 0:",
			Test: "./internal/amqpscreen -run TestTransfersAreChecked"},
		{File: delivery, Old: "s.partial+len(part) > maxPartial", New: "len(d.payload) > maxPartial",
			Test: "./internal/amqpscreen -run TestIncompleteMessagesAreBounded"},
		{File: sent, Old: "l.maxSize = min(l.maxSize, own)",
			New: "", Test: "./internal/amqpscreen -run TestTheMaxMessageSizeOfALinkHolds"},

		{File: links, Old: "h.out.settle(l.firstUnsettled, l.lastUnsettled)", New: "",
			Test: "./internal/amqpscreen -run TestADispositionAfterTheDetachIsDropped"},
		{File: links, Old: "f.set(maxMessageSize, 0)", New: "",
			Test: "./internal/amqpscreen -run TestTheMaxMessageSizeOfThePeerIsIgnored"},
		{File: links, Old: "f.set(settleMode, first)", New: "", Test: "./internal/amqpscreen -run TestReceiversSettleFirst"},
		{File: deliveries, Old: "d.base = id // also when the gap is wider than the span", New: "",
			Test: "./internal/amqpscreen -run TestUnsettledDeliveriesAreBounded"},

		// Deliveries of several links in turns.
		{File: delivery, Old: "\tif settled {\n\t\th.in.settle(id, id)\n",
			New:  "\tif h.in.begin(id); settled {\n\t\th.in.settle(id, id)\n",
			Test: "./internal/amqpscreen -run TestADeliveryEndsAfterALaterOne|TestTransfersStayInStep"},
		{File: delivery, Old: "\t\th.in.settle(d.id, d.id)\n", New: "",
			Test: "./internal/amqpscreen -run TestTransfersStayInStep"},
		{File: links, Old: "h.in.settle(l.partial.id, l.partial.id)", New: "",
			Test: "./internal/amqpscreen -run TestTransfersStayInStep"},
		{File: links, Old: "h.out.settle(l.sendingID, l.sendingID)", New: "",
			Test: "./internal/amqpscreen -run TestOutcomesOfInterleavedSendsPass"},
		{File: sent, Old: "id := l.sendingID", New: "id := h.out.next - 1",
			Test: "./internal/amqpscreen -run TestOutcomesOfInterleavedSendsPass"},
		{File: links, Old: "f.set(nextOutgoing, f.uint32(nextOutgoing)-n)", New: "",
			Test: "./internal/amqpscreen -run TestTransfersStayInStep"},
		{File: "testbroker/internal/amqp/flow.go", Old: "lead > 0 {", New: "lead > 1<<30 {",
			Test: "./testbroker -run TestANextIncomingIDDoesNotLead"},

		// A broken message is confined to itself.
		{File: delivery, Old: "\t\t\t\td.bad = bad\n", New: "",
			Test: "./internal/amqpscreen -run TestABrokenMessageIsReplaced"},
		{File: partial, Old: "payload = appendStandIn(nil, d.bad)", New: "_ = d.bad",
			Test: "./internal/amqpscreen -run TestABrokenMessageIsReplaced"},
		{File: partial, Old: "(d.held-1)*room >= len(d.payload)", New: "d.held*room >= len(d.payload)",
			Test: "./internal/amqpscreen -run TestTransfersStayInStep"},
		{File: partial, Old: "(d.held-1)*room >= len(d.payload)", New: "room < 0",
			Test: "./internal/amqpscreen -run TestTransfersStayInStep"},
		{File: links, Old: "f.before = l.partial.passAll() // they count for the session", New: "",
			Test: "./internal/amqpscreen -run TestTransfersStayInStep"},
		{File: delivery, Old: "\t\ts.partial -= len(d.payload)\n\t\td.payload = nil\n", New: "",
			Test: "./internal/amqpscreen -run TestIncompleteMessagesAreBounded"},
		{File: table, Old: "return w.Seen&alone != 0 || ", New: "return ",
			Test: "./transport/amqp -run TestAMessageThatCannotBeReadIsRejected"},
		{File: "transport/amqp/cbs.go", Old: "_ = session.Close(ctx) // it is", New: "_ = ctx // it is",
			Test: "./transport/amqp -run TestABrokenTokenAnswerEndsItsSession"},
		{File: "transport/amqp/c2d.go", Old: "_ = link.RejectMessage(s.ctx, m, &amqp.Error{",
			New: "_ = (&amqp.Error{", Test: "./transport/amqp -run TestABrokenMessageIsRejected"},
		{File: "transport/amqp/pair.go", Old: "\t\t\treturn bad\n", New: "",
			Test: "./transport/amqp -run TestABrokenTwinEndsOneSession"},

		{File: "internal/amqpconn/conn.go", Old: "if e := endedByLibrary(err); e != nil {",
			New:  "if e := endedByLibrary(err); false {",
			Test: "./transport/amqp -run TestTheErrorOfALinkThatTheLibraryEnds"},

		// Reading.
		{File: read, Old: "if reads > 0 && in.idle > 0 {", New: "if false {",
			Test: "./internal/amqpscreen -run TestPartsOfAFrameResetTheIdleTimeout"},
	}
}
