package main

func init() {
	const (
		screen     = "transport/amqp/screen.go"
		links      = "transport/amqp/screenlinks.go"
		delivery   = "transport/amqp/screendelivery.go"
		deliveries = "transport/amqp/deliveries.go"
		partial    = "transport/amqp/screenpartial.go"
		sent       = "transport/amqp/screensent.go"
		read       = "transport/amqp/screenread.go"
		table      = "transport/amqp/screentable.go"
	)
	tables["amqpscreen"] = []mutation{
		// The structure of a frame.
		{File: "internal/amqpwire/walk.go", Old: "key.Type&isKey == 0", New: "key.Type&isKey == 0 && depth < 2",
			Test: "./transport/amqp -run TestFramesAreCheckedWhole|TestABrokenMessageIsReplaced"},
		{File: "internal/amqpwire/walk.go", Old: "if w.items--; w.items < 0 {", New: "if w.items--; false {",
			Test: "./internal/amqpwire -run TestWalker"},
		{File: screen, Old: "case b[5] != want:", New: "case b[5] > 1:",
			Test: "./transport/amqp -run TestFrameTypeAndDataOffsetAreChecked"},
		{File: screen, Old: "case head > wire.HeaderSize || body[1] != 0x53:", New: "case body[1] != 0x53:",
			Test: "./transport/amqp -run TestFrameTypeAndDataOffsetAreChecked"},
		{File: table, Old: "if f.required {", New: "if f.required && f.types != wire.IsUint {",
			Test: "./transport/amqp -run TestFramesAreCheckedWhole"},
		{File: table, Old: "name: \"max-frame-size\", types: wire.IsUint, least: minFrameSize",
			New: "name: \"max-frame-size\", types: wire.IsUint", Test: "./transport/amqp -run TestTheHandshakeIsChecked"},

		// State from earlier frames.
		{File: links, Old: "case f.null(linkCredit) && f.null(deliveryCount):", New: "case false:",
			Test: "./transport/amqp -run TestAFlowWithoutCreditKeepsTheCredit"},
		{File: links, Old: "f.set(nextIncoming, h.transfers)", New: "f.set(nextIncoming, 0)",
			Test: "./transport/amqp -run TestAFlowWithoutNextIncomingIDIsCompleted"},
		{File: deliveries, Old: "end := min(int(int32(to-d.base)), 64*len(d.bits)-1)", New: "end := 64*len(d.bits) - 1",
			Test: "./transport/amqp -run TestADispositionNamesNoMoreThanWasSent"},
		{File: delivery, Old: "if high != to || f.null(last) && low != high {", New: "if f.null(last) && low != high {",
			Test: "./transport/amqp -run TestADispositionNamesNoMoreThanWasSent"},
		{File: delivery, Old: "case id == math.MaxUint32:", New: "case false:",
			Test: "./transport/amqp -run TestADispositionNamesNoMoreThanWasSent"},
		{File: delivery, Old: "case int32(l.creditEnd-l.received) <= 0:", New: "case int32(l.creditEnd-l.received) < 0:",
			Test: "./transport/amqp -run TestTransfersAreChecked"},
		{File: delivery, Old: "s.partial+len(part) > maxPartial", New: "len(d.payload) > maxPartial",
			Test: "./transport/amqp -run TestIncompleteMessagesAreBounded"},
		{File: sent, Old: "l.maxSize = min(l.maxSize, own)",
			New: "", Test: "./transport/amqp -run TestTheMaxMessageSizeOfALinkHolds"},

		{File: links, Old: "h.out.settle(l.firstUnsettled, l.lastUnsettled)", New: "",
			Test: "./transport/amqp -run TestADispositionAfterTheDetachIsDropped"},
		{File: links, Old: "f.set(maxMessageSize, 0)", New: "",
			Test: "./transport/amqp -run TestTheMaxMessageSizeOfThePeerIsIgnored"},
		{File: links, Old: "f.set(settleMode, first)", New: "", Test: "./transport/amqp -run TestReceiversSettleFirst"},
		{File: deliveries, Old: "d.base = id // also when the gap is wider than the span", New: "",
			Test: "./transport/amqp -run TestUnsettledDeliveriesAreBounded"},

		// Deliveries of several links in turns.
		{File: delivery, Old: "\tif settled {\n\t\th.in.settle(id, id)\n",
			New:  "\tif h.in.begin(id); settled {\n\t\th.in.settle(id, id)\n",
			Test: "./transport/amqp -run TestADeliveryEndsAfterALaterOne|TestTransfersStayInStep"},
		{File: delivery, Old: "\t\th.in.settle(d.id, d.id)\n", New: "",
			Test: "./transport/amqp -run TestTransfersStayInStep"},
		{File: links, Old: "h.in.settle(l.partial.id, l.partial.id)", New: "",
			Test: "./transport/amqp -run TestTransfersStayInStep"},
		{File: links, Old: "h.out.settle(l.sendingID, l.sendingID)", New: "",
			Test: "./transport/amqp -run TestOutcomesOfInterleavedSendsPass"},
		{File: sent, Old: "id := l.sendingID", New: "id := h.out.next - 1",
			Test: "./transport/amqp -run TestOutcomesOfInterleavedSendsPass"},
		{File: links, Old: "f.set(nextOutgoing, f.uint32(nextOutgoing)-n)", New: "",
			Test: "./transport/amqp -run TestTransfersStayInStep"},
		{File: "testbroker/internal/amqp/flow.go", Old: "lead > 0 {", New: "lead > 1<<30 {",
			Test: "./testbroker -run TestANextIncomingIDDoesNotLead"},

		// A broken message is confined to itself.
		{File: delivery, Old: "\t\t\t\td.bad = bad\n", New: "",
			Test: "./transport/amqp -run TestABrokenMessageIsReplaced"},
		{File: partial, Old: "payload = appendStandIn(nil, d.bad)", New: "_ = d.bad",
			Test: "./transport/amqp -run TestABrokenMessageIsReplaced"},
		{File: partial, Old: "(d.held-1)*room >= len(d.payload)", New: "d.held*room >= len(d.payload)",
			Test: "./transport/amqp -run TestTransfersStayInStep"},
		{File: partial, Old: "(d.held-1)*room >= len(d.payload)", New: "room < 0",
			Test: "./transport/amqp -run TestTransfersStayInStep"},
		{File: links, Old: "f.before = l.partial.passAll() // they count for the session", New: "",
			Test: "./transport/amqp -run TestTransfersStayInStep"},
		{File: delivery, Old: "\t\ts.partial -= len(d.payload)\n\t\td.payload = nil\n", New: "",
			Test: "./transport/amqp -run TestIncompleteMessagesAreBounded"},
		{File: table, Old: "return w.Seen&alone != 0 || ", New: "return ",
			Test: "./transport/amqp -run TestAMessageThatCannotBeReadIsRejected"},
		{File: "transport/amqp/cbs.go", Old: "_ = session.Close(ctx) // it is", New: "_ = ctx // it is",
			Test: "./transport/amqp -run TestABrokenTokenAnswerEndsItsSession"},
		{File: "transport/amqp/c2d.go", Old: "_ = link.RejectMessage(s.ctx, m, &amqp.Error{",
			New: "_ = (&amqp.Error{", Test: "./transport/amqp -run TestABrokenMessageIsRejected"},
		{File: "transport/amqp/pair.go", Old: "\t\t\treturn bad\n", New: "",
			Test: "./transport/amqp -run TestABrokenTwinEndsOneSession"},

		{File: "transport/amqp/connection.go", Old: "if e := endedByLibrary(err); e != nil {",
			New:  "if e := endedByLibrary(err); false {",
			Test: "./transport/amqp -run TestTheErrorOfALinkThatTheLibraryEnds"},

		// Reading.
		{File: read, Old: "if reads > 0 && in.idle > 0 {", New: "if false {",
			Test: "./transport/amqp -run TestPartsOfAFrameResetTheIdleTimeout"},
	}
}
