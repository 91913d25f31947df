package main

func init() {
	tables["policy"] = []mutation{
		// A policy with missing fields waits or is refused.
		{File: "retrypolicy/exponential.go", Old: "if least == 0 {", New: "if least == 0 && c == documented.C {",
			Test: "./retrypolicy -run TestFormulaAtTheEdges"},
		{File: "retrypolicy/backoff.go", Old: "case b.Base == 0:", New: "case b.Base == 0 && b.Max == 0:",
			Test: "./retrypolicy/compat -run TestZeroFieldsWaitOrAreRefused"},
		{File: "retrypolicy/compat/failsafe.go", Old: "case f.Delay == 0 && f != (Failsafe{}):",
			New: "case f.Delay == 0 && f.Retries == 1:", Test: "./retrypolicy/compat -run TestZeroFieldsWaitOrAreRefused"},

		// A retry that is not made costs nothing.
		{File: "device/outage.go", Old: "\tq.withdraw(l)\n\tq.askedOf", New: "\tq.askedOf",
			Test: "./device -run TestPolicyChangesDuringAWaitChargeOnce"},
		{File: "device/pause.go", Old: "\tl.outage.withdraw(l)\n\tif q := l.pause.question",
			New: "\tif q := l.pause.question", Test: "./device -run TestARetryThatIsNotMadeCostsNothing"},
		{File: "device/twincalls.go", Old: "if k.state == callWaiting || k.state == callQueued {",
			New: "if k.state == callQueued {", Test: "./device -run TestPolicyChangesBeforeTheRetryOfATwinCallChargeOnce"},
		{File: "device/gate.go", Old: "l.outage.withdraw(l)\n\t\t\t\treturn l.giveUp", New: "return l.giveUp",
			Test: "./device -run TestARetryThatIsRefusedAfterItWasPaid"},
		{File: "device/decide.go", Old: "\tp.connection = to\n\tif !p.apart {\n", New: "\tp.connection = to\n\t{\n",
			Test: "./device -run TestThePoliciesForConnectionsAndMessages"},
		{File: "retrypolicy/limits.go", Old: "case r.StopOverMax && r.Max == 0:", New: "case false:",
			Test: "./retrypolicy -run TestWrappersValidate"},
		{File: "retrypolicy/limits.go", Old: "return refuse(m.Policy, a, d, stop(OutOfTime))", New: "return stop(OutOfTime)",
			Test: "./retrypolicy/budget -run TestAQuotaChargesForRetriesThatAreMade"},
		{File: "retrypolicy/series.go", Old: "\tdefault:\n\t\ts.withdraw(now)\n", New: "",
			Test: "./retrypolicy/budget -run TestAQuotaChargesForRetriesThatAreMade"},

		// Classes, counters and limits.
		{File: "retrypolicy/bykind.go", Old: "n := min(a.Last.Counts[i], maxRetry) + 1",
			New: "n := min(a.Last.Counts[i], 254) + 1", Test: "./retrypolicy -run TestByKindCountsBeyondAByte"},
		{File: "retrypolicy/network.go", Old: "if e.Unwrap() == nil && !e.Timeout() {", New: "if e == nil {",
			Test: "./retrypolicy -run TestClassifyKnowsFailuresOfTheNetwork"},
		{File: "retrypolicy/budget/share.go", Old: "b.share.above(b.retries, b.all+b.retries+b.queued)",
			New:  "b.share.above(b.retries, b.all+b.retries)",
			Test: "./retrypolicy/budget -run TestConcurrencyBudgetCountsWaitingCalls"},
		{File: "retrypolicy/do.go", Old: "ok && u.r.Timeout == 0 && endless(u.r.Policy)",
			New: "ok && u.r.Timeout < 0 && endless(u.r.Policy)", Test: "./retrypolicy -run TestAnEndlessCurveHasALimit"},
		{File: "retrypolicy/do.go", Old: "return j.Info, j.Err", New: "return j.Info, j",
			Test: "./retrypolicy/poll -run TestUntilHidesItsJudgement"},
		{File: "retrypolicy/do.go", Old: "e.Cause = context.Cause(u.ctx)", New: "e.Cause = e.ended",
			Test: "./retrypolicy -run TestTheCauseOfACancelledContext"},
	}
}
