package main

func init() {
	tables["bounds"] = []mutation{
		// Calls and answers of direct methods.
		{File: "device/methods.go", Old: "m.bytes+len(d.Msg.Body) > methodsBytes,\n", New: "false,\n",
			Test: "./device -run TestCallsAndAnswersAreBoundedWhileTheHubReadsNothing"},
		{File: "device/methods.go", Old: "m.running+len(m.waiting)+m.unsent >= m.c.set.MethodLimit",
			New: "m.running+len(m.waiting) >= m.c.set.MethodLimit", Test: "./device -run " +
				"TestCallsAreBoundedByCountWhileTheHubReadsNothing"},
		{File: "device/methods.go", Old: "return len(m.answers)-m.unsent < methodsUnsent", New: "return true",
			Test: "./device -run TestRefusalsOfUnknownMethodsAreBounded"},
		{File: "device/methods.go", Old: "case m.bytes <= methodsBytes:", New: "default:",
			Test: "./device -run TestCallsThatWaitAreNotRunWhileAnswersHoldAllMemory"},
		{File: "device/methods.go", Old: "m.known = slices.Delete(m.known, i, i+1)", New: "_ = i",
			Test: "./device -run TestTheIdsOfOldCallsAreForgotten"},
		{File: "transport/amqp/methods.go", Old: "len(c.answers) >= maxAnswers ||", New: "",
			Test: "./transport/amqp -run TestQueuedMethodAnswersAreBounded"},
		{File: "transport/mqtt/session.go", Old: " && s.conn.waitForSpace(s.disconnecting) > 0 {\n\t\t\t_, _ = s",
			New: " {\n\t\t\t_, _ = s", Test: "./internal/sim -run TestAHubThatFloodsAndReadsNothing/paho/messages"},

		// Callbacks that do not return.
		{File: "device/crash.go", Old: "\tl.releaseDialSlot()\n\tif l.joining", New: "\tif l.joining",
			Test: "./device -run TestAClockThatDoesNotReturnKeepsNoPlace"},
		{File: "device/crash.go", Old: "\tl.c.outbox.rewind()\n", New: "",
			Test: "./device -run TestMessagesInFlightSurviveAFailedCallback"},
		{File: "device/goroutines_std.go", Old: "\terr := errNoReturn\n\tdefer func() { l.reportEnd(err, recover()) }()",
			New:  "\tvar err error\n\tdefer func() {\n\t\tif err != nil {\n\t\t\tl.reportEnd(err, recover())\n\t\t}\n\t}()",
			Test: "./device -run TestARunThatDoesNotReturn/exit"},

		// Texts of peers.
		{File: "internal/amqpconn/errors.go", Old: "scrub.Peer(e.Description)", New: "e.Description",
			Test: "./internal/amqpconn -run TestTextsOfPeersAreBounded"},
		{File: "internal/scrub/peer.go", Old: "if s = escape(Text(s)); len(s)", New: "if s = Text(s); len(s)",
			Test: "./internal/scrub -run TestATextOfAPeer"},
		{File: "transport/internal/status/text_std.go", Old: "return scrub.Peer(s)", New: "return scrub.Text(s)",
			Test: "./internal/sim -run TestTextsOfTheHub"},
	}
}
