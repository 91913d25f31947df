package main

func init() {
	tables["fleet"] = []mutation{
		// The hub's limits.
		{File: "fleet/hub.go", Old: "if full-at > l.burst+l.queue && l.full > at+l.burst {",
			New: "if full-at > l.burst+l.queue && l.full > at+2*l.burst {", Test: "./fleet -run TestALimitOfConnectsIsKept"},
		{File: "fleet/hub.go", Old: "l.each*float64(n)", New: "l.each", Test: "./fleet -run TestLimiter"},
		{File: "fleet/hub.go", Old: "return int64(max(0, full-at-l.burst)), true", New: "return 0, true",
			Test: "./fleet -run TestLimiter"},

		{File: "testbroker/internal/hub/limit.go", Old: "\tif wait > l.queue {", New: "\tif false {",
			Test: "./testbroker -run TestConnectsBeyondTheQueue"},
		{File: "testbroker/internal/hub/limit.go", Old: "if done.Before(now) {", New: "if false {",
			Test: "./testbroker -run TestConnectsBeyondTheQueue"},
		{File: "testbroker/internal/mqttfront/publish.go", Old: "f.answer(c, m, wait)", New: "f.answer(c, m, 0*wait)",
			Test: "./testbroker -run TestALimitOfMessages"},
		{File: "fleet/hub.go", Old: "return answer{outcome: messageRefused, at: t + s.rtt}",
			New: "return answer{outcome: acknowledged, at: t + s.rtt}", Test: "./fleet -run TestTooManyMessages"},

		// What a fault does to a device.
		{File: "fleet/fault.go", Old: "since %= int64(f.Every)", New: "since = 0", Test: "./fleet -run TestShape"},
		{File: "fleet/fault.go", Old: "periods := (t - at + int64(f.Every) - 1) / int64(f.Every)",
			New: "periods := (t - at) / int64(f.Every)", Test: "./fleet -run TestShape"},
		{File: "fleet/live.go", Old: "if notice < f.For {", New: "if true {",
			Test: "./fleet -run TestAShortSilentFaultIsNotNoticed"},
		{File: "fleet/live.go", Old: "b.unnoticed(d, later(d.loss, f.For))", New: "b.unnoticed(d, d.loss)",
			Test: "./fleet -run TestNothingPassesInASilentFault"},
		{File: "fleet/live.go", Old: "if b.sim.rules.RenewAt < 0 {\n\t\td.renew = max", New: "if true {\n\t\td.renew = max",
			Test: "./fleet -run TestNothingPassesInASilentFault"},

		// The load of a day.
		{File: "fleet/simulation.go", Old: "s.Telemetry.walk(0, reconnect.Spread(every, d.draw()))",
			New: "int64(reconnect.Spread(every, d.draw()))", Test: "./fleet -run TestADayWithoutAFaultIsQuiet"},
		{File: "fleet/scenarios.go", Old: "/slices.Max(s.Telemetry.Day[:])", New: "/min(1, slices.Max(s.Telemetry.Day[:]))",
			Test: "./fleet -run TestADayWithoutAFaultIsQuiet"},

		// A run ends with its context.
		{File: "fleet/block.go", Old: "if ctx.Err() != nil {\n\t\t\treturn\n", New: "if false {\n\t\t\treturn\n",
			Test: "./fleet -run TestAContextEndsAStep"},
		{File: "fleet/block.go", Old: "const mostAhead = int64(10 * time.Minute)",
			New: "const mostAhead = int64(maxDuration)", Test: "./fleet -run TestAContextEndsAStep"},

		// What a result says.
		{File: "fleet/count.go", Old: "t.seconds[at/second]++", New: "t.seconds[at/t.bin*t.bin/second]++",
			Test: "./fleet -run TestAPeakIsThatOfASecond"},
		{File: "fleet/result.go", Old: "\t\tif f.At >= s.Duration {\n", New: "\t\tif false {\n",
			Test: "./fleet -run TestAFaultWithoutAnEnd"},
		{File: "fleet/result.go", Old: "case first == s.Duration:", New: "case false:", Test: "./fleet -run TestSteady"},
		{File: "fleet/result.go", Old: "\t\treturn Never, max(recovery, 0)\n", New: "\t\treturn first, max(recovery, 0)\n",
			Test: "./fleet -run TestSteady"},
		{File: "fleet/simulation.go", Old: "{\"Options.Workers\", set.Workers, 1, 1024},",
			New: "{\"Options.Workers\", set.Workers, -1, 1024},", Test: "./fleet -run TestBadFieldsAreNamed"},
		{File: "cmd/fleet/table.go", Old: "if r.Steady == fleet.NoSteady {", New: "if false {",
			Test: "./cmd/fleet -run TestTimesWithoutAReference"},

		// The rules that are compared, and what they met.
		{File: "fleet/live.go", Old: "\tcase rules.RenewInStep:\n", New: "\tcase false:\n",
			Test: "./fleet -run TestEachSDKRenews"},
		{File: "fleet/contenders.go", Old: "RenewAt: renewAt, RenewInStep: true,",
			New: "RenewAt: 0 * renewAt, RenewInStep: true,", Test: "./fleet -run TestEachSDKRenews"},
		{File: "fleet/contenders.go", Old: "limited.Dials, limited.DialGap = 10, 100*time.Millisecond",
			New: "limited.Dials, limited.DialGap = 1000, 0*time.Millisecond", Test: "./fleet -run TestTheDialLimit"},
		{File: "cmd/fleet/plan.go", Old: "Scenario: scenario.WithDefaults()", New: "Scenario: scenario",
			Test: "./cmd/fleet -run TestJSONHasTheResults"},

		// The order of events.
		{File: "fleet/block.go", Old: "b.ahead = min(b.start+b.calendar.step, b.sim.end)", New: "b.ahead = b.sim.end",
			Test: "./fleet -run TestAGatewayAsksInOrder"},
		{File: "fleet/order.go", Old: "\t\tslices.Sort(list)\n", New: "\t\t_ = slices.Sort[[]arrival]\n",
			Test: "./fleet -run TestTheFirstToArriveIsServedFirst"},
		{File: "fleet/order.go", Old: "if end-begin > 1 {", New: "if end-begin > 2 {",
			Test: "./fleet -run TestArrivalsAreSorted"},
		{File: "fleet/calendar.go", Old: "if n/wheel > c.now/wheel {", New: "if false {",
			Test: "./fleet -run TestTheCalendarKeepsEveryDevice"},
		{File: "fleet/calendar.go", Old: "i, k.next, c.free = k.next, c.free, i", New: "i = k.next",
			Test: "./fleet -run TestTheCalendarUsesItsChunksAgain"},
		{File: "fleet/outcome.go", Old: "bounded: f.after > 0 || pacing.IsSlow(f.kind)",
			New: "bounded: false && pacing.IsSlow(0)", Test: "./fleet -run TestTheDefaultPolicyIsAskedLikeAnyOther"},
		{File: "fleet/dials.go", Old: "\tif l.free == 0 {", New: "\tif false {",
			Test: "./fleet -run TestAGatewayDialsInTurn"},
		{File: "fleet/block.go", Old: "max(t, d.began+int64(b.sim.rules.DialTimeout))", New: "t",
			Test: "./fleet -run TestAFaultMeetsAttempts"},

		// Nothing is counted twice or not at all.
		{File: "fleet/block.go", Old: "b.count(end, t, 1)", New: "b.count(cAccepted, t, 1)",
			Test: "./fleet -run TestAFixedDelayKeepsTheHerd"},
		{File: "fleet/block.go", Old: "if !d.ready && (end", New: "if (end",
			Test: "./fleet -run TestProvisioningComesFirst"},
		{File: "cmd/fleet/recorded.go", Old: " - s.Registrations[i]", New: "", Test: "./cmd/fleet -run TestDistance"},
		{File: "fleet/result.go", Old: "first, recovery = s.Duration, Never", New: "first, recovery = s.Duration, 0",
			Test: "./fleet -run TestTokensThatWereIssuedTogether"},
		{File: "fleet/outage.go", Old: "b.count(cDown, t, 1)", New: "_ = cDown",
			Test: "./fleet -run TestAFixedDelayKeepsTheHerd"},
		{File: "fleet/live.go", Old: "b.count(cOverflow, d.due, 1)", New: "_ = cOverflow",
			Test: "./fleet -run TestOutboxesOverflow"},

		// The caller's own rules, and what a run that ends early leaves.
		{File: "cmd/fleet/own.go", Old: "r.ReconnectSpread = -1", New: "r.ReconnectSpread = 0",
			Test: "./cmd/fleet -run TestOwnRulesAreARow"},
		{File: "cmd/fleet/plan.go", Old: "s.yours != nil && !slices", New: "false && !slices",
			Test: "./cmd/fleet -run TestOwnRulesAreARow"},
		{File: "cmd/fleet/main.go", Old: "errors.Join(err, s.write(families, out))", New: "err",
			Test: "./cmd/fleet -run TestAnEarlyEndKeepsTheResults"},
		{File: "cmd/fleet/main.go", Old: "err := s.openOutputs()", New: "err := error(nil)",
			Test: "./cmd/fleet -run TestAWrongOutputIsFoundFirst"},
		{File: "cmd/fleet/output.go", Old: "len(f.Results) == 0", New: "false",
			Test: "./cmd/fleet -run TestAnEarlyEndKeepsTheResults"},

		{File: "cmd/fleet/output.go", Old: "if len(families) == 0 {", New: "if false {",
			Test: "./cmd/fleet -run TestAnEndWithoutResults"},

		// The recommended spread.
		{File: "fleet/contenders.go", Old: "{9000, 30 * time.Second, 30 * time.Second}",
			New: "{9000, 30 * time.Second, 10 * time.Second}", Test: "./fleet -run TestTheRecommendedSpread"},

		// Scenarios in JSON.
		{File: "fleet/json.go", Old: "if !set.Has(name) {", New: "if false {",
			Test: "./fleet -run TestBadJSONNamesTheField"},
		{File: "fleet/json.go", Old: "len(items) > most:", New: "len(items) > 2*most:",
			Test: "./fleet -run TestBadJSONNamesTheField"},
		{File: "fleet/json.go", Old: "wrong[0].Field = path", New: "wrong[0].Field += path[:0]",
			Test: "./fleet -run TestBadJSONNamesTheField"},
		{File: "fleet/text.go", Old: "strings.EqualFold(t, string(text))", New: "t == string(text)",
			Test: "./fleet -run TestAScenarioByHand"},
		{File: "cmd/fleet/input.go", Old: "!unicode.IsPrint(r)", New: "r == 0",
			Test: "./cmd/fleet -run TestABadNameIsRefused"},
		{File: "cmd/fleet/input.go", Old: "len(name) > maxName", New: "len(name) > 2*maxName",
			Test: "./cmd/fleet -run TestABadNameIsRefused"},

		// The curve of a real fleet.
		{File: "cmd/fleet/recorded.go", Old: "sum[i] = s.Accepted[i] + s.Rejected[i]", New: "sum[i] = s.Attempts[i]",
			Test: "./cmd/fleet -run TestDistance"},
		{File: "cmd/fleet/recorded.go", Old: "min(end, r.Duration)\n\t\tif from", New: "end\n\t\tif from",
			Test: "./cmd/fleet -run TestDistance"},
		{File: "cmd/fleet/recorded.go", Old: "noTime != nil && noRate != nil", New: "noTime != nil",
			Test: "./cmd/fleet -run TestBadRowsAreNamed"},
		{File: "cmd/fleet/recorded.go", Old: "next.at <= c.rows[n-1].at", New: "next.at < c.rows[n-1].at",
			Test: "./cmd/fleet -run TestBadRowsAreNamed"},

		// The rules of the client.
		{File: "fleet/outage.go", Old: "case lasted >= b.sim.rules.StableTime:", New: "case true:",
			Test: "./fleet -run TestAFlappingFleetBacksOff"},
		{File: "fleet/live.go", Old: "\t\tworked = d.hold // when the fault began\n", New: "",
			Test: "./fleet -run TestASilentLossIsNoUptime"},
		{File: "internal/reconnect/reconnect.go", Old: "option == 0 && retry > 1", New: "option == 0",
			Test: "./device -run TestTheSecondRetryIsSpreadByDefault"},
		{File: "fleet/block.go", Old: "reconnect.MostSpread(b.sim.rules.ReconnectSpread, int(d.retry))",
			New:  "reconnect.MostSpread(b.sim.rules.ReconnectSpread, 1)",
			Test: "./fleet -run TestRealClientsDoWhatTheSimulatorPredicts/default"},
		{File: "internal/reconnect/reconnect.go", Old: "fraction.Of(life, renewAt) - fraction.Drawn(life/20, draw)",
			New:  "fraction.Of(life, renewAt) - 0*fraction.Drawn(life/20, draw)",
			Test: "./fleet -run TestTokensThatWereIssuedTogether"},
		{File: "internal/reconnect/reconnect.go", Old: "t.next = at.Add(max(0, t.Gap))", New: "t.next = at",
			Test: "./fleet -run TestAGatewayDialsInTurn"},
	}
}
