package main

func init() {
	const (
		core   = "testbroker/internal/eventhub/"
		front  = "testbroker/internal/amqpfront/"
		log    = "testbroker/internal/hub/eventlog.go"
		notify = "testbroker/internal/hub/notify.go"
		pure   = "./testbroker/internal/eventhub -run "
		test   = "./testbroker -run "
	)
	tables["events"] = []mutation{
		// A repeated property of many makes a message with two equal keys.
		{File: "testbroker/internal/amqpfront/eventsmessage.go", Old: "seen[name] = true", New: "_ = seen",
			Test: "./testbroker -run TestPropertiesOfAnEvent"},
		// An event needs more memory than it must.
		{File: front + "eventsmessage.go", Old: "\t\treturn nil\n\t}\n\tall := make", New: "\t}\n\tall := make",
			Test: "./testbroker/internal/amqpfront -run TestAnEventIsCheap"},
		// Start positions and what is kept.
		{File: core + "log.go", Old: "max(at, p.begin), nil", New: "at, nil", Test: pure + "TestStartPositions"},
		{File: core + "log.go", Old: "if at > p.next() {", New: "if false {", Test: pure + "TestStartPositions"},
		{File: core + "log.go", Old: "s.Value+s.after()+offsetStep-1", New: "s.Value+offsetStep-1",
			Test: pure + "TestStartPositions"},
		{File: core + "log.go", Old: "p.last = max(p.last, at.UnixNano())", New: "p.last = at.UnixNano()",
			Test: pure + "TestTimesDoNotGoBack"},
		{File: core + "log.go", Old: "l.keep > 0 && l.held > l.keep", New: "false",
			Test: pure + "TestReaderOfForgottenEvents"},
		{File: core + "filter.go", Old: "part[2] == \">=\"", New: "false", Test: pure + "TestFiltersOfAllClients"},

		// Readers that exclude each other.
		{File: core + "group.go", Old: "case r.Epoch < old.Epoch:", New: "case r.Epoch <= old.Epoch:",
			Test: pure + "TestHigherEpochExcludesReaders"},
		{File: core + "group.go", Old: "len(present) >= maxReaders", New: "len(present) > maxReaders",
			Test: pure + "TestSixthReaderIsRefused"},
		{File: front + "eventsreader.go", Old: "busy.Reason != eventhub.Stolen", New: "true",
			Test: test + "TestReaderWithAnEpochExcludesOthers"},
		{File: front + "eventsreader.go", Old: "\tr.link.conn.hub.Events.Groups.Leave(r.reader)\n", New: "",
			Test: test + "TestSixReadersOfAGroup"},

		// Settlement, credit and memory.
		{File: front + "eventsreader.go", Old: "r.link.Answer.SndSettleMode = wire.SendSettled",
			New: "r.link.Answer.SndSettleMode = wire.SendMixed", Test: test + "TestAnswerSaysThatEventsComeSettled"},
		{File: front + "eventsreader.go", Old: "r.link.Asked.SndSettleMode != wire.SendUnsettled", New: "false",
			Test: test + "TestSettlementOfEvents"},
		{File: front + "eventsreader.go", Old: "if wait := a.c.Crowded(); wait != nil {",
			New: "if wait := a.c.Crowded(); false {", Test: test + "TestSlowReaderCostsLittleMemory"},

		// Refusals, rights and notices.
		{File: "testbroker/internal/amqp/link.go", Old: "l.refuse(refusal, errors.As(err, &bare))",
			New: "l.refuse(refusal, false && errors.As(err, &bare))", Test: test + "TestAnswerSaysThatEventsComeSettled"},
		{File: front + "events.go", Old: "if err := e.eventsEnd.permit(); err != nil {",
			New:  "if err := error(nil); err != nil {",
			Test: test + "TestRedirectNeedsTheRight"},
		{File: notify, Old: "stays := c.speaks != hubdata.HTTP", New: "stays := true",
			Test: test + "TestNoticesOfConnections"},
		{File: notify, Old: "case u.Replace:", New: "case false:", Test: test + "TestNoticesOfTwins"},
	}
}
