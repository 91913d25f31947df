package main

func init() {
	tables["device"] = []mutation{
		{File: "device/methods.go", Old: "m.running == 0 && len(m.answers) == 0", New: "m.running == 0",
			Test: "./device -run TestCloseSendsTheAnswersThatWait"},

		// The limiter of dials.
		{File: "device/limiter.go", Old: "\tif s.held {\n\t\ts.held = false\n\t\t<-s.of.slots",
			New:  "\tif s.held {\n\t\ts.held = false\n\t\tif s.of == nil {\n\t\t\t<-s.of.slots\n\t\t}",
			Test: "./device -run TestAFailedDialGivesItsPlaceBack"},
		{File: "device/limiter.go", Old: "\t\t\ts.release()\n", New: "",
			Test: "./device -run TestAWaitBeforeTheRequests"},
		{File: "device/limiter.go", Old: "\t\t\t\ts.held = true\n", New: "",
			Test: "./device -run TestAWaitBeforeTheRequests"},
		{File: "device/limiter.go", Old: "return sleep(ctx, time.Until(s.of.turn(time.Now())))", New: "return nil",
			Test: "./device -run TestAWaitBeforeTheRequests"},
		{File: "device/limiter.go", Old: "\ts.held = false\n", New: "",
			Test: "./device -run TestCloseDuringAWaitBeforeTheRequests"},
		{File: "device/dial.go", Old: "l.releaseDialSlot()\n\t\t\treturn false", New: "return false",
			Test: "./device -run TestCloseWhileWaitingForATurn"},
		{File: "device/dial.go", Old: "\tif l.holdsDialSlot {\n\t\tl.holdsDialSlot = false\n\t\t<-l.c.set.Dials.slots\n\t}",
			New: "\t<-l.c.set.Dials.slots", Test: "./device -run TestCloseWhileWaitingForAPlace"},

		// Answers and results of messages.
		{File: "device/outbox_withdraw.go", Old: "s.receipt, s.call = nil, false", New: "s.call = false",
			Test: "./device -run TestALateAnswerIsNotTheResultOfTheNextSend"},
		{File: "device/outbox_withdraw.go", Old: "s.receipt, s.call = nil, false", New: "s.receipt = nil",
			Test: "./device -run TestAMessageWhoseSendGaveUpStays"},
		{File: "device/outbox_session.go", Old: "int(i) >= len(b.slots) || b.slots[i].state != slotInFlight",
			New: "int(i) >= len(b.slots) || b.slots[i].state == slotFree", Test: "./device -run TestAnAnswerFor"},
		{File: "device/outbox_session.go", Old: "b.slots[i].state != slotInFlight {\n\t\treturn",
			New:  "b.slots[i].state != slotInFlight && b.slots[i].state != slotQueued {\n\t\treturn",
			Test: "./device -run TestAnAnswerForAMessageThatIsQueuedAgain"},
		{File: "device/outbox_session.go", Old: "\tb.backLocked(slotInFlight)\n\tb.backLocked(slotRefused)\n",
			New:  "\tb.backLocked(slotInFlight)\n",
			Test: "./device -run TestARefusedMessageGoesAtOnce"},
		{File: "device/outbox_session.go", Old: "time.Duration(oldest.size/(4<<10))*time.Second", New: "0",
			Test: "./device -run TestALargeMessageHasMoreTime"},
		{File: "device/outbox_flush.go", Old: "append(b.flushers[:i], b.flushers[i+1:]...)", New: "b.flushers[:i]",
			Test: "./device -run TestAFlushThatGivesUp"},
		{File: "device/outbox_flush.go", Old: "b.flushers = append(b.flushers[:i], b.flushers[i+1:]...)", New: "",
			Test: "./device -run TestFlushesThatGaveUp"},
		{File: "device/receipt.go", Old: "if !r.waited.CompareAndSwap(false, true) {", New: "if false {",
			Test: "./device -run TestAWaitThatComesSecondIsRefusedAtOnce"},

		// Messages that expire.
		{File: "device/outbox_halt.go", Old: "b.wakeBlockedLocked()\n\tb.armSweepLocked()\n", New: "b.wakeBlockedLocked()\n",
			Test: "./device -run TestAMessageExpires"},
		{File: "device/outbox_session.go", Old: "b.refused++\n\t\tb.noteExpiryLocked(s.msg)", New: "b.refused++",
			Test: "./device -run TestAMessageExpires"},
		{File: "device/outbox_session.go", Old: "s.state = slotQueued\n\t\tb.noteExpiryLocked(s.msg)",
			New:  "s.state = slotQueued",
			Test: "./device -run TestAMessageExpires"},

		// The client becomes Disconnected.
		{File: "device/outbox_halt.go", Old: "b.halted = err\n\tb.wakeBlockedLocked()\n", New: "b.halted = err\n",
			Test: "./device -run TestASendThatWaitsForRoom"},
		{File: "device/outage.go", Old: "\tc.mu.Lock()\n\tif !l.own.over {",
			New:  "\tc.halt(failure)\n\tc.mu.Lock()\n\tif !l.own.over {",
			Test: "./device -run TestAFailedSendFindsTheClientDisconnected"},

		// Policies, gates and the twin's calls.
		{File: "device/gate.go", Old: "if now.Before(l.hold.until) && l.hold.by == l.c.policies.Load() {",
			New: "if now.Before(l.hold.until) {", Test: "./device -run TestANewPolicyEndsAHold"},
		{File: "device/twinserve.go", Old: "if k.asked.askedOf != t.c.policies.Load() {\n\t\t\t\tt.ask(l, k)\n\t\t\t}",
			New: "", Test: "./device -run TestANewPolicyIsAskedAboutATwinCallThatWaitsForItsRetry"},
		{File: "device/twincalls.go", Old: "\tif k.state == callGone {\n\t\treturn\n\t}\n\tif k.state == callWaiting",
			New: "\tif k.state == callWaiting", Test: "./device -run TestACallerGivesUpWhileThePolicyIsAsked"},
		{File: "device/outage.go", Old: "d.Delay -= l.spread", New: "",
			Test: "./device -run TestAPolicyGetsItsOwnDelayWithoutTheSpread"},
		{File: "device/methods.go", Old: "m.known = slices.Delete(m.known, i, i+1)", New: "_ = i",
			Test: "./device -run TestEndedMethodCallsAreForgotten"},

		// Counters that restart, and when.
		{File: "device/stability.go",
			Old: "l.retry, l.last, l.renewed, l.flaps = 0, retrypolicy.Decision{}, false, flapping{}",
			New: "l.retry, l.last, l.flaps = 0, retrypolicy.Decision{}, flapping{}", Test: "./device -run TestEachExpiredToken"},
		{File: "device/stability.go", Old: "\t}\n\tl.since = time.Now()\n", New: "\tl.since = time.Now()\n\t}\n",
			Test: "./device -run TestOutageLimitCountsFromTheLatestLoss"},
		{File: "device/serve.go", Old: "c.reconnect.Store(false) // one that came during the attempt has what it wanted",
			New: "", Test: "./device -run TestReconnectDuringAnAttempt"},
		{File: "device/outage.go", Old: "l.retry, l.last, l.renewed, l.since = 0, retrypolicy.Decision{}, false, time.Now()",
			New:  "l.last, l.renewed, l.since = retrypolicy.Decision{}, false, time.Now()",
			Test: "./device -run TestTryAgainAfter"},
		{File: "device/outage.go", Old: "l.retry, l.last, l.renewed, l.since = 0, retrypolicy.Decision{}, false, time.Now()",
			New: "l.retry, l.renewed, l.since = 0, false, time.Now()", Test: "./device -run TestTryAgainAfter"},
		{File: "device/outage.go", Old: "l.retry, l.last, l.renewed, l.since = 0, retrypolicy.Decision{}, false, time.Now()",
			New: "l.retry, l.last, l.since = 0, retrypolicy.Decision{}, time.Now()", Test: "./device -run TestTryAgainAfter"},
		{File: "device/outage.go", Old: "l.retry, l.last, l.renewed, l.since = 0, retrypolicy.Decision{}, false, time.Now()",
			New: "l.retry, l.last, l.renewed = 0, retrypolicy.Decision{}, false", Test: "./device -run TestTryAgainAfter"},
		{File: "device/sleep.go", Old: " && failure.Kind != transport.Throttled", New: "",
			Test: "./device -run TestAClockJumpDoesNotShortenADelayOfTheService"},
		{File: "device/sleep.go", Old: " && failure.Kind != transport.Quota", New: "",
			Test: "./device -run TestAClockJumpDoesNotShortenADelayOfTheService"},

		// Answers of the hub over MQTT.
		{File: "transport/mqtt/dialect/hubtwin.go", Old: "e.RetryAfter = time.Duration(after) * time.Second",
			New: "e.RetryAfter = time.Duration(after)", Test: "./transport/mqtt/dialect -run TestAnswersOfTheTwin"},
		{File: "transport/mqtt/dialect/hubtwin.go", Old: "ok && after > 0 && after < 1<<31",
			New: "ok && after < 1<<31", Test: "./transport/mqtt/dialect -run TestAnswersOfTheTwin"},

		// A message that the library returns as unsent may be the one that ended the link.
		{File: "transport/amqp/telemetry.go", Old: "suspects := len(inFlight) + tried",
			New: "suspects := max(len(inFlight), min(tried, 1))", Test: "-race -count=20 ./transport/amqp -run " +
				"TestTheMessageBeforeTheBadOneIsNotBlamed"},
	}
}
